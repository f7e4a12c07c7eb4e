//! What others keep beside the locks, asked without waiting for them for long.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_wire::answer::OutsideList;
use tokio::sync::Semaphore;

/// How long a list waits for what others keep beside the locks.
pub(super) const OUTSIDE_PATIENCE: Duration = Duration::from_secs(3);

/// What others keep.
pub trait Elsewhere: std::fmt::Debug + Send + Sync {
    /// May take a while.
    fn list(&self) -> OutsideList;
}

/// Asks what others keep, one at a time and for so long at most. A call that hangs can't be ended: it keeps its turn, so
/// whoever comes then is told, too, and no second thread hangs.
pub(super) async fn look(list: Arc<dyn Elsewhere>, looking: Arc<Semaphore>, patience: Duration) -> OutsideList {
    let failed = |problem: String| OutsideList { locks: Vec::new(), problems: vec![problem] };
    let look = async move {
        let turn = looking.acquire_owned().await.map_err(|error| error.to_string())?;
        let work = move || {
            let listed = list.list();
            drop(turn);
            listed
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
    };
    match tokio::time::timeout(patience, look).await {
        Ok(listed) => listed.unwrap_or_else(failed),
        Err(_) => failed(format!("what is elsewhere was not told within {} ms", patience.as_millis())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A folder that hangs until it is let go.
    #[derive(Debug)]
    struct Hangs(AtomicUsize, Mutex<()>);

    impl Elsewhere for Hangs {
        fn list(&self) -> OutsideList {
            self.0.fetch_add(1, Ordering::SeqCst);
            drop(self.1.lock());
            OutsideList::default()
        }
    }

    #[test]
    fn a_folder_that_hangs_keeps_one_thread_and_nobody_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let hangs = Arc::new(Hangs(AtomicUsize::new(0), Mutex::new(())));
        let looking = Arc::new(Semaphore::new(1));
        let ask = |patience| runtime.block_on(look(hangs.clone(), looking.clone(), patience));
        let held = hangs.1.lock().expect("nobody panics");
        for _ in 0..3 {
            assert!(ask(Duration::from_millis(100)).problems[0].contains("100 ms"));
        }
        assert_eq!(hangs.0.load(Ordering::SeqCst), 1, "one at a time");
        drop(held);
        assert!(ask(Duration::from_secs(30)).problems.is_empty(), "and all is well when it answers");
    }
}
