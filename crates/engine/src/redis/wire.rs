//! Bytes to and from one Redis, over TCP and maybe TLS. Knows no command; notices when nothing will come any more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::Host;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open connection.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    gone: Arc<AtomicBool>,
}

impl Wire {
    pub(super) async fn open(host: &Host, tls: Option<&TlsConnector>) -> io::Result<Wire> {
        let tcp = TcpStream::connect((host.name.as_str(), host.port)).await?;
        // A command is one small packet, and whoever sent it waits for it.
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
                Box::new(tls.connect(name, tcp).await?)
            }
        };
        Ok(Wire { stream, gone: Arc::default() })
    }

    /// Becomes true when the connection has ended.
    pub(super) fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    fn watch<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = polled {
            self.gone.store(true, Ordering::Release);
        }
        polled
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() && buf.filled().len() == before && buf.remaining() > 0 {
            self.gone.store(true, Ordering::Release);
        }
        self.watch(polled)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
