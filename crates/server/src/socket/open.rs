//! The questions of one connection that are open: asked, and not answered.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::ReusableBoxFuture;

use crate::refusal::No;
use crate::service::{self, Reply};

/// Questions of one connection that may be open at once; beyond that, it is not read.
const OPEN_MAX: usize = 256;

/// The questions of one connection that are not answered yet. Most of the time there is one, which needs no set, and is put
/// where the one before was.
#[derive(Default)]
pub(super) struct Open {
    only: Option<ReusableBoxFuture<'static, Answered>>,
    /// Whether that is one, and not what is left of the last.
    asked: bool,
    others: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// One of them may be answered at length. There is one such at a time, and the next one is not begun: what can be asked for in a
    /// line may take a hundred megabytes. Whatever else comes before it, such as a heartbeat, does not wait.
    pub(super) at_length: bool,
}

impl Open {
    fn len(&self) -> usize {
        usize::from(self.asked) + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing more is read before something is answered.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= OPEN_MAX
    }

    pub(super) fn push(&mut self, asked: impl Future<Output = Answered> + Send + 'static) {
        if self.asked {
            self.others.push(Box::pin(asked));
            return;
        }
        self.asked = true;
        match &mut self.only {
            Some(only) => only.set(asked),
            None => self.only = Some(ReusableBoxFuture::new(asked)),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        if self.asked
            && let Some(only) = &mut self.only
            && let Poll::Ready(answered) = only.poll(cx)
        {
            self.asked = false;
            return Poll::Ready(answered);
        }
        if self.others.is_empty() {
            return Poll::Pending;
        }
        match self.others.poll_next_unpin(cx) {
            Poll::Ready(Some(answered)) => Poll::Ready(answered),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// The next answer; waits for ever if nothing is open.
    pub(super) async fn next(&mut self) -> Answered {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next answer, if there is one already.
    pub(super) async fn next_ready(&mut self) -> Option<Answered> {
        std::future::poll_fn(|cx| Poll::Ready(ready(self.poll_next(cx)))).await
    }

    /// Takes every answer that there is already, one after the other, when nobody waits for the rest any more. Each is asked for: the
    /// runtime puts off whoever comes behind many others, and then nobody is told that its answer has come.
    pub(super) async fn take_ready(mut self, mut take: impl FnMut(Answered)) {
        let all = std::future::poll_fn(|cx| {
            let only = self.only.as_mut().filter(|_| self.asked).map(|only| only.poll(cx));
            let others = Pin::new(&mut self.others).iter_pin_mut().map(|asked| asked.poll(cx));
            only.into_iter().chain(others).filter_map(ready).for_each(&mut take);
            Poll::Ready(())
        });
        tokio::task::unconstrained(all).await;
    }
}

/// What has come, if it has.
fn ready<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(come) => Some(come),
        Poll::Pending => None,
    }
}

/// A question that was answered.
pub(super) struct Answered {
    pub(super) id: u64,
    pub(super) at_length: bool,
    pub(super) reply: Reply,
}

impl Answered {
    pub(super) fn no(id: u64, no: No) -> Answered {
        Answered { id, at_length: false, reply: service::reply(Err(no)) }
    }
}
