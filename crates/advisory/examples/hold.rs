//! Holds a lock until its input ends, and says when it has it and when it has lost it.
//!
//! ```sh
//! DATABASE_URL=postgres://localhost/app cargo run -p lockkeeper-advisory --example hold -- 1 42
//! ```

use std::io::{Read, Write};

use lockkeeper_advisory::{Address, LockId, LockNamespace, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let namespace = LockNamespace::new(words.next().unwrap_or_default().parse()?);
    let id = LockId::parse(&words.next().unwrap_or_default())?;
    let locks = Locks::open(Address::parse(&std::env::var("DATABASE_URL")?)?, 1)?;
    let guard = locks.lock(namespace, id, None).await?;
    println!("held by process {} of the server", guard.pid());
    std::io::stdout().flush()?;
    let (tell, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = tell.send(());
    });
    tokio::select! {
        lost = guard.lost() => println!("{lost}"),
        _ = ended => guard.release().await?,
    }
    Ok(())
}
