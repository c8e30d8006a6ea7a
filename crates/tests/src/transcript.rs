//! Whole conversations as bytes: sends everything, closes the sending side, and reads until the server closes the
//! connection. Needs neither parsing of replies nor timeouts.

use crate::server::Server;
use std::io;
use std::thread;
use std::time::Duration;

/// Returns the server's output for `bytes` sent at once.
pub fn transcript(server: &Server, bytes: &[u8]) -> io::Result<Vec<u8>> {
    transcript_of_pieces(server, &[bytes], Duration::ZERO)
}

/// Returns the server's output for `pieces` sent one by one with a pause between them, long enough to be read
/// separately.
pub fn transcript_of_pieces(server: &Server, pieces: &[&[u8]], pause: Duration) -> io::Result<Vec<u8>> {
    let mut conn = server.connect();
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 {
            thread::sleep(pause);
        }
        match conn.send(piece) {
            // The server may have closed after an error; its output must still be read.
            Err(e) if crate::conn::closed(&e) => break,
            sent => sent?,
        }
    }
    // Fails if the server has already closed.
    let _ = conn.finish();
    conn.read_to_close()
}
