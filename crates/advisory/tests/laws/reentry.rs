//! P15: to ask again for what one holds never deadlocks.

use std::pin::Pin;
use std::time::{Duration, Instant};

use lockkeeper_advisory::{AdvisoryLockError, LockNamespace, Locks, Pools, within};

use crate::ground::{held, in_time, locks, namespace, server};

/// Far less than any timeout: the answer must not have waited for one.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Boxed, since every test has it inside of a scope.
fn is_refused_at_once(locks: &Locks, namespace: LockNamespace) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    Box::pin(all_are_refused(locks, namespace))
}

async fn all_are_refused(locks: &Locks, namespace: LockNamespace) {
    let began = Instant::now();
    let scope = locks.lock(namespace, 1, None).scope(async || Ok::<(), AdvisoryLockError>(())).await;
    assert!(matches!(scope, Err(AdvisoryLockError::Reentered { .. })), "{scope:?}");
    let guard = locks.lock(namespace, 1, None).await;
    assert!(matches!(guard, Err(AdvisoryLockError::Reentered { .. })), "{guard:?}");
    let skipped =
        locks.lock_or_skip(namespace, 1).scope(async |acquired| Ok::<bool, AdvisoryLockError>(acquired)).await;
    assert_eq!(skipped, Ok(false));
    assert!(locks.lock_or_skip(namespace, 1).await.expect("no error").is_none());
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn p15_reentrancy_detection() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let body = async || {
        is_refused_at_once(&locks, namespace).await;
        assert_eq!(held(&server, namespace), 1, "the outer lock stays");
        // Something else may be locked inside.
        locks.lock(namespace, 2, None).scope(async || anyhow::Ok(())).await
    };
    in_time(locks.lock(namespace, 1, None).scope(body)).await.expect("held to the end");
    assert_eq!(held(&server, namespace), 0);
    in_time(locks.lock(namespace, 1, None).scope(async || anyhow::Ok(()))).await.expect("free again");
}

#[tokio::test]
async fn p15_reentrancy_in_non_blocking_mode() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let body = async |acquired: bool| {
        assert!(acquired);
        is_refused_at_once(&locks, namespace).await;
        anyhow::Ok(())
    };
    in_time(locks.lock_or_skip(namespace, 1).scope(body)).await.expect("held to the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p15_re_entry_is_seen_across_awaits_on_whatever_thread() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let outer = locks.clone();
    let task = tokio::spawn(async move {
        let inner = outer.clone();
        let body = async || {
            for _ in 0..50 {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            is_refused_at_once(&inner, namespace).await;
            anyhow::Ok(())
        };
        outer.lock(namespace, 1, None).scope(body).await
    });
    in_time(task).await.expect("no panic").expect("held to the end");
}

#[tokio::test]
async fn p15_a_guard_marks_its_task_until_it_is_gone() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let other = locks.clone();
    let task = tokio::spawn(async move {
        let guard = other.lock(namespace, 1, None).await.expect("locked");
        is_refused_at_once(&other, namespace).await;
        guard.release().await.expect("held to the end");
        let guard = other.lock(namespace, 1, None).await.expect("free again");
        drop(guard);
        other.lock(namespace, 1, None).await.expect("a dropped one is no re-entry").release().await.expect("held");
    });
    in_time(task).await.expect("no panic");
    // And outside of any task, by the thread.
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    in_time(is_refused_at_once(&locks, namespace)).await;
    in_time(guard.release()).await.expect("held to the end");
}

#[tokio::test]
async fn p15_two_guards_side_by_side_in_one_task_do_not_wait_for_each_other() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let both = async {
        tokio::join!(locks.lock(namespace, 1, None).into_future(), locks.lock(namespace, 1, None).into_future())
    };
    let (one, two) = in_time(both).await;
    assert!(one.is_ok() && matches!(two, Err(AdvisoryLockError::Reentered { .. })), "{one:?} {two:?}");
}

#[tokio::test]
async fn p15_a_spawned_task_that_declares_it_is_inside() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let body = async || {
        let inner = locks.clone();
        let declared = tokio::spawn(within(async move { is_refused_at_once(&inner, namespace).await }));
        in_time(declared).await?;
        // One that declares nothing is somebody else, and waits.
        let inner = locks.clone();
        let stranger = tokio::spawn(async move { inner.lock(namespace, 1, Duration::from_millis(200)).await });
        let refused = in_time(stranger).await?;
        assert!(matches!(refused, Err(AdvisoryLockError::Timeout { .. })), "{refused:?}");
        anyhow::Ok(())
    };
    in_time(locks.lock(namespace, 1, None).scope(body)).await.expect("held to the end");

    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let inner = locks.clone();
    let declared = tokio::spawn(guard.within(async move { is_refused_at_once(&inner, namespace).await }));
    in_time(declared).await.expect("no panic");
    in_time(guard.release()).await.expect("held to the end");
}

#[tokio::test]
async fn p15_a_declared_task_may_lock_what_was_given_back_meanwhile() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let (tell, over) = tokio::sync::oneshot::channel::<()>();
    let body = async || {
        let inner = locks.clone();
        anyhow::Ok(tokio::spawn(within(async move {
            over.await.expect("told");
            inner.lock(namespace, 1, None).scope(async || anyhow::Ok(())).await
        })))
    };
    let declared = in_time(locks.lock(namespace, 1, None).scope(body)).await.expect("held to the end");
    tell.send(()).expect("it listens");
    in_time(declared).await.expect("no panic").expect("free by then");
}

#[tokio::test]
async fn p15_another_pool_of_the_same_database_does_not_hide_it() {
    let server = server();
    let namespace = namespace();
    let (one, two) = (Pools::open(&server.socket_url()).expect("pools"), locks(&server, 3));
    let body = async || {
        is_refused_at_once(&two, namespace).await;
        anyhow::Ok(())
    };
    in_time(one.locks().lock(namespace, 1, None).scope(body)).await.expect("held to the end");
}
