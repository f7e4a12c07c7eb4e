//! What goes out on a connection, whichever door it came through.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::stream::UNREAD_MAX;

/// Room for what is written at once that is kept.
pub(crate) const OUT_BYTES: usize = 4096;

/// What all readers together may leave unread, in pieces of a few kilobytes.
const UNREAD_BYTES_MAX: usize = 256 << 20;
const PIECE_BYTES: usize = 4096;

/// Room for answers that were made and are not read: a list may have tens of megabytes, and connections there are thousands.
#[derive(Clone, Debug)]
pub(crate) struct Unread(Arc<Semaphore>);

impl Default for Unread {
    fn default() -> Unread {
        Unread(Arc::new(Semaphore::new(UNREAD_BYTES_MAX / PIECE_BYTES)))
    }
}

impl Unread {
    /// Room for so much, until it is given back. There may be none: whoever wants to leave still more unread does not get it.
    pub(crate) fn hold(&self, bytes: usize) -> std::io::Result<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX);
        let held = self.0.clone().try_acquire_many_owned(pieces);
        held.map_err(|_| std::io::Error::new(ErrorKind::OutOfMemory, "readers have left too much unread"))
    }
}

/// Writes what is ready; a reader that leaves it unread for too long is dropped, and so is one for whom there is no room.
pub(crate) async fn flush(
    writer: &mut (impl AsyncWrite + Unpin),
    out: &mut Vec<u8>,
    unread: &Unread,
) -> std::io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    // Most of the time there is room, and nothing to wait for.
    let written = match std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *writer).poll_write(cx, out))).await {
        Poll::Ready(written) => written?,
        Poll::Pending => 0,
    };
    if written < out.len() {
        let _room = unread.hold(out.len() - written)?;
        tokio::time::timeout(UNREAD_MAX, writer.write_all(&out[written..])).await??;
    }
    out.clear();
    out.shrink_to(OUT_BYTES);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn readers_together_leave_no_more_unread_than_there_is_room_for() {
        let unread = Unread(Arc::new(Semaphore::new(3)));
        let (mut writer, mut reader) = tokio::io::duplex(16);
        let first = tokio::spawn({
            let unread = unread.clone();
            async move { flush(&mut writer, &mut vec![b'x'; 2 * PIECE_BYTES], &unread).await }
        });
        while unread.0.available_permits() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (mut other, mut quick) = tokio::io::duplex(16);
        let refused = flush(&mut other, &mut vec![b'y'; 2 * PIECE_BYTES], &unread).await;
        assert_eq!(refused.expect_err("no room").kind(), ErrorKind::OutOfMemory);
        // Whoever reads at once needs none.
        flush(&mut other, &mut vec![b'z'; 0], &unread).await.expect("nothing is left");
        quick.read_exact(&mut [0; 16]).await.expect("what fitted");
        flush(&mut other, &mut vec![b'z'; 16], &unread).await.expect("nothing is left");
        reader.read_exact(&mut vec![0; 2 * PIECE_BYTES]).await.expect("all of it");
        first.await.expect("no panic").expect("it was read");
        assert_eq!(unread.0.available_permits(), 3);
    }
}
