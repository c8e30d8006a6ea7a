//! Whole conversations as bytes: everything is sent, the sending side is closed, and everything that comes back is read
//! until the server closes, too. No reply needs to be understood for that, and no time is guessed.

use crate::server::Server;
use std::io;
use std::thread;
use std::time::Duration;

/// What `server` answers to `bytes` sent at once.
pub fn transcript(server: &Server, bytes: &[u8]) -> io::Result<Vec<u8>> {
    transcript_of_pieces(server, &[bytes], Duration::ZERO)
}

/// What `server` answers to `pieces` sent one by one with a pause between them, long enough to be read apart.
pub fn transcript_of_pieces(server: &Server, pieces: &[&[u8]], pause: Duration) -> io::Result<Vec<u8>> {
    let mut conn = server.connect();
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 {
            thread::sleep(pause);
        }
        match conn.send(piece) {
            // The server may have closed after an error; what it said first is still to be read.
            Err(e) if crate::conn::closed(&e) => break,
            sent => sent?,
        }
    }
    // Fails where the server has closed already.
    let _ = conn.finish();
    conn.read_to_close()
}
