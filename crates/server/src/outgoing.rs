//! What goes out on a connection, whichever door it came through.

use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::stream::UNREAD_MAX;

/// Room for what is written at once that is kept.
pub(crate) const OUT_BYTES: usize = 4096;

/// Writes what is ready; a reader that leaves it unread for too long is dropped.
pub(crate) async fn flush(writer: &mut (impl AsyncWrite + Unpin), out: &mut Vec<u8>) -> std::io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    // Most of the time there is room, and nothing to wait for.
    let written = match std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *writer).poll_write(cx, out))).await {
        Poll::Ready(written) => written?,
        Poll::Pending => 0,
    };
    if written < out.len() {
        tokio::time::timeout(UNREAD_MAX, writer.write_all(&out[written..])).await??;
    }
    out.clear();
    out.shrink_to(OUT_BYTES);
    Ok(())
}
