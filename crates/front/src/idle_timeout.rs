//! A socket with an idle timeout: it fails if the peer neither sends nor receives data for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

/// Number of bytes that a peer must receive within the timeout, unless fewer are left. A peer that receives a byte now
/// and then would keep a reply in memory.
const WRITTEN_MIN: usize = 256 * 1024;

/// See the module's documentation.
pub(crate) struct WithIdleTimeout<S> {
    socket: TokioIo<S>,
    time: Duration,
    /// End of the timeout.
    end: Pin<Box<Sleep>>,
    /// Set while written bytes wait for the peer: the number of bytes it received since the timeout began.
    written: Option<usize>,
}

impl<S> WithIdleTimeout<S> {
    pub(crate) fn new(socket: S, time: Duration) -> WithIdleTimeout<S> {
        WithIdleTimeout { socket: TokioIo::new(socket), time, end: Box::pin(sleep(time)), written: None }
    }

    fn begin_anew(&mut self) {
        let end = Instant::now() + self.time;
        self.end.as_mut().reset(end);
    }

    /// Result of a pending operation: pending, or an error after the timeout.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Tracks a flush or shutdown; an encrypting socket may still have to send data.
    fn end_writing(&mut self, sent: Poll<io::Result<()>>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if sent.is_pending() {
            self.written.get_or_insert(0);
            return self.wait(context);
        }
        if self.written.take().is_some() {
            self.begin_anew();
        }
        sent
    }

    fn note_written(&mut self, bytes: usize) {
        match &mut self.written {
            Some(written) if *written + bytes < WRITTEN_MIN => *written += bytes,
            _ => {
                self.written = None;
                self.begin_anew();
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Read for WithIdleTimeout<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.socket).poll_read(context, buffer) {
            Poll::Pending => this.wait(context),
            read => {
                // A peer that sends but doesn't receive gets no more time than a silent one.
                if this.written.is_none() {
                    this.begin_anew();
                }
                read
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Write for WithIdleTimeout<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.socket).poll_write(context, bytes) {
            Poll::Pending => {
                this.written.get_or_insert(0);
                this.wait(context)
            }
            Poll::Ready(Ok(written)) => {
                this.note_written(written);
                Poll::Ready(Ok(written))
            }
            error => error,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.socket).poll_flush(context);
        this.end_writing(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.socket).poll_shutdown(context);
        this.end_writing(shut, context)
    }
}
