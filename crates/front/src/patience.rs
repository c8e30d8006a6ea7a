//! A socket that is given up when its peer neither sends nor takes anything for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes that a peer must take within the time, or all that there are: one that takes a byte now and then holds a reply in memory.
const WRITTEN_MIN: usize = 256 * 1024;

/// See the module's documentation.
pub(crate) struct Patient<S> {
    socket: TokioIo<S>,
    time: Duration,
    /// When the patience ends.
    end: Pin<Box<Sleep>>,
    /// Whether something waits to be taken, and what of it was taken since the time began.
    written: Option<usize>,
}

impl<S> Patient<S> {
    pub(crate) fn new(socket: S, time: Duration) -> Patient<S> {
        Patient { socket: TokioIo::new(socket), time, end: Box::pin(sleep(time)), written: None }
    }

    fn begin_anew(&mut self) {
        let end = Instant::now() + self.time;
        self.end.as_mut().reset(end);
    }

    /// What to say while nothing happens.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// The end of what was written, which a socket that encrypts has still to send.
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

impl<S: AsyncRead + Unpin> Read for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.socket).poll_read(context, buffer) {
            Poll::Pending => this.wait(context),
            read => {
                // One that sends and takes nothing isn't waited for any longer than one that sends nothing.
                if this.written.is_none() {
                    this.begin_anew();
                }
                read
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Write for Patient<S> {
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
