//! Turns among connections that are served by one thread.

use std::task::Poll;

/// Comes back when everything that is ready now has had its turn.
pub(crate) async fn after_others() {
    let mut came_back = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut came_back, true) {
            return Poll::Ready(());
        }
        // Not tokio's own yielding, which asks the system for news before.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
