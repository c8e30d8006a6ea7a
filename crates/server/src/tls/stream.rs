//! An encrypting socket: it reads and sends like a plain one, and never blocks.
//!
//! An idle one has no buffers. Received data are decrypted in the thread's scratch memory. An incomplete record is kept in `received`, and
//! data beyond the reader's room in `decrypted`, which no poller announces ([`TlsStream::is_pending`]).
//!
//! At most `PLAIN_BYTES_MAX` are encrypted at once, and count as sent only after the socket has taken all of their encrypted form. A client
//! that doesn't read therefore accumulates only the replies themselves. They are counted, limited and put on disk like the replies of a
//! plain connection. `unsent` is the encrypted form of their beginning.

use std::cell::RefCell;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use resp::reply::Output;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::ServerConfig;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};

/// The longest received record in bytes: RFC 5246 allows 2,048 beyond the plaintext, and a header of 5.
const RECORD_BYTES_MAX: usize = 16 * 1024 + 2048 + 5;
/// Bytes received at once. Together with an incomplete record this bounds the decrypted bytes in store for the reader.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;
/// Bytes read by one call while there are more and room for them. Other connections have their turn then.
const READ_BYTES_MAX: usize = 256 * 1024;
/// Bytes encrypted for one system call. Their encrypted form is kept if the socket doesn't take it.
const PLAIN_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one record's plaintext. Small pieces of replies are combined up to this size.
const GATHERED_BYTES_MAX: usize = 16 * 1024;
/// A generous bound for the bytes that encryption adds to [`PLAIN_BYTES_MAX`]: 29 per record, with five records, and a key update.
const OVERHEAD_BYTES_MAX: usize = 4 * 1024;
/// Bytes of incomplete handshake messages: more than chains of certificates take, and rustls's own limit.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024 + RECORD_BYTES_MAX;
/// Bytes received at once during a handshake.
const HANDSHAKE_READ_BYTES: usize = 8 * 1024;
/// Bytes of memory of a session during its handshake, besides its buffers. Measurements gave 2,200 to 4,300.
pub const SESSION_BYTES: usize = 5 * 1024;
/// The most unsent bytes of a client that makes the server answer key updates and reads nothing.
const ANSWERS_BYTES_MAX: usize = 64 * 1024;

/// A thread's memory for encryption and decryption.
struct Scratch {
    incoming: Box<[u8]>,
    plain: Vec<u8>,
    outgoing: Box<[u8]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        incoming: vec![0; RECORD_BYTES_MAX + RECEIVE_BYTES_MAX].into(),
        plain: Vec::with_capacity(GATHERED_BYTES_MAX),
        outgoing: vec![0; PLAIN_BYTES_MAX + OVERHEAD_BYTES_MAX].into(),
    });
}

/// An encrypting socket.
pub struct TlsStream {
    tcp: TcpStream,
    session: UnbufferedServerConnection,
    /// The beginning of an incomplete record, or of handshake messages. The session has noted its position in them, and each call needs
    /// them.
    received: Vec<u8>,
    /// Decrypted data beyond the reader's room.
    decrypted: Vec<u8>,
    /// The part of it that has been read since.
    decrypted_read: usize,
    /// Encrypted bytes that the socket has not taken.
    unsent: Vec<u8>,
    /// The part of them that it has taken.
    unsent_taken: usize,
    /// Bytes of replies in `unsent`: they count as sent with its last byte.
    owed: usize,
    /// True after the peer's end of data.
    ended: bool,
    /// True if data received with the handshake's last message have not been decrypted.
    is_fresh: bool,
    /// True after an error that makes the session useless.
    failed: bool,
    /// True if the loop has listed it as pending.
    pub(crate) is_noted: bool,
}

/// The state of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// The handshake has succeeded.
    Done,
    /// The handshake waits for data of the peer.
    Reads,
    /// The socket takes no more.
    Writes,
}

/// The destination of a read.
enum Sink<'a> {
    /// The beginning of a slice, and the filled length.
    Slice(&'a mut [u8], usize),
    /// The end of a vector, within its capacity, and the added length.
    Vec(&'a mut Vec<u8>, usize),
}

impl Sink<'_> {
    fn room(&self) -> usize {
        match self {
            Sink::Slice(slice, filled) => slice.len() - filled,
            Sink::Vec(vec, _) => vec.capacity() - vec.len(),
        }
    }

    fn filled(&self) -> usize {
        match self {
            Sink::Slice(_, filled) | Sink::Vec(_, filled) => *filled,
        }
    }

    /// Takes as many bytes as there is room for. Returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        match self {
            Sink::Slice(slice, filled) => {
                slice[*filled..*filled + count].copy_from_slice(&bytes[..count]);
                *filled += count;
            }
            Sink::Vec(vec, filled) => {
                vec.extend_from_slice(&bytes[..count]);
                *filled += count;
            }
        }
        count
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl TlsStream {
    /// The server's side of a newly accepted connection with a non-blocking socket.
    ///
    /// # Errors
    /// If the configuration is unusable.
    pub fn accept(tcp: TcpStream, config: Arc<ServerConfig>) -> Result<TlsStream, rustls::Error> {
        Ok(TlsStream {
            tcp,
            session: UnbufferedServerConnection::new(config)?,
            received: Vec::new(),
            decrypted: Vec::new(),
            decrypted_read: 0,
            unsent: Vec::new(),
            unsent_taken: 0,
            owed: 0,
            ended: false,
            is_fresh: true,
            failed: false,
            is_noted: false,
        })
    }

    /// The peer's certificate in DER, if it has sent one.
    #[must_use]
    pub fn certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificates()?.first().map(|certificate| certificate.as_ref())
    }

    /// Returns true if there is input that no poller announces. The end of data counts, like with a poller, as long as reads continue.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.decrypted.is_empty() || self.is_fresh || self.ended
    }

    /// Bytes of its memory during the handshake.
    #[must_use]
    pub fn handshake_bytes(&self) -> usize {
        SESSION_BYTES + self.received.capacity() + self.unsent.capacity()
    }

    /// Continues the handshake as far as possible without waiting.
    ///
    /// # Errors
    /// The peer has closed the connection, or the two sides don't agree. In the second case the peer was sent the reason.
    pub fn shake_hands(&mut self) -> io::Result<Handshake> {
        loop {
            if !self.send_unsent()? {
                return Ok(Handshake::Writes);
            }
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut self.received);
            let step = match state {
                Ok(state) => follow(state, &mut self.unsent, &mut self.decrypted),
                Err(error) => Err(invalid(error)),
            };
            self.received.drain(..discard);
            match step {
                Ok(StateStep::GoOn) => {}
                Ok(StateStep::Ready) => return Ok(Handshake::Done),
                Ok(StateStep::NeedsMore) => {
                    if !self.receive_handshake()? {
                        return Ok(Handshake::Reads);
                    }
                }
                Ok(StateStep::Ended) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => {
                    let mut received = std::mem::take(&mut self.received);
                    self.fail(&mut received);
                    return Err(error);
                }
            }
        }
    }

    /// Receives more of a handshake. Returns false if there is no more yet.
    fn receive_handshake(&mut self) -> io::Result<bool> {
        let have = self.received.len();
        if have >= HANDSHAKE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the handshake is too long"));
        }
        self.received.resize(have + HANDSHAKE_READ_BYTES, 0);
        let result = receive(&self.tcp, &mut self.received[have..]);
        self.received.truncate(have + result.as_ref().map_or(0, |count| count.unwrap_or(0)));
        // A silent peer takes no more memory than its data.
        self.received.shrink_to_fit();
        match result? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Marks the session as useless, and sends the peer the reason if the socket takes it. `received` are the undiscarded bytes.
    fn fail(&mut self, received: &mut [u8]) {
        self.failed = true;
        let UnbufferedStatus { state, .. } = self.session.process_tls_records(received);
        if let Ok(state @ ConnectionState::EncodeTlsData(_)) = state
            && follow(state, &mut self.unsent, &mut Vec::new()).is_ok()
        {
            // Useful for a peer that reads, and lost otherwise.
            let _ = self.send_unsent();
        }
    }

    /// Reads into a slice. Returns 0 at the end of data, and `None` if there are none yet.
    ///
    /// # Errors
    /// The connection is broken, or the data are not authentic.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        self.read_to(Sink::Slice(into, 0))
    }

    /// Reads to the end of a vector, within its spare capacity.
    ///
    /// # Errors
    /// Like [`TlsStream::read`].
    pub fn read_more(&mut self, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
        self.read_to(Sink::Vec(into, 0))
    }

    fn read_to(&mut self, mut sink: Sink<'_>) -> io::Result<Option<usize>> {
        self.take_decrypted(&mut sink);
        while !self.ended && sink.room() > 0 && sink.filled() < READ_BYTES_MAX {
            if !self.receive_records(&mut sink)? {
                break;
            }
        }
        match sink.filled() {
            0 if self.ended => Ok(Some(0)),
            0 => Ok(None),
            count => Ok(Some(count)),
        }
    }

    /// Gives a reader the data decrypted before.
    fn take_decrypted(&mut self, sink: &mut Sink<'_>) {
        self.decrypted_read += sink.take(&self.decrypted[self.decrypted_read..]);
        if self.decrypted_read == self.decrypted.len() {
            (self.decrypted, self.decrypted_read) = (Vec::new(), 0);
        }
    }

    /// Receives once and decrypts whole records. Returns true if there may be more.
    fn receive_records(&mut self, sink: &mut Sink<'_>) -> io::Result<bool> {
        SCRATCH.with_borrow_mut(|scratch| {
            let have = self.received.len();
            if have > RECORD_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a TLS record is too long"));
            }
            let incoming = &mut scratch.incoming;
            incoming[..have].copy_from_slice(&self.received);
            let wanted = sink.room().clamp(RECORD_BYTES_MAX, RECEIVE_BYTES_MAX);
            let result = receive(&self.tcp, &mut incoming[have..have + wanted])?;
            let count = result.unwrap_or(0);
            if count > 0 || std::mem::take(&mut self.is_fresh) {
                self.is_fresh = false;
                self.decrypt(&mut incoming[..have + count], sink)?;
            }
            self.ended |= result == Some(0);
            Ok(count == wanted)
        })
    }

    /// Decrypts the whole records, and keeps the rest.
    fn decrypt(&mut self, incoming: &mut [u8], sink: &mut Sink<'_>) -> io::Result<()> {
        let mut at = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut incoming[at..]);
            at += discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid)?;
                        at += record.discard;
                        // In order: behind the data in store.
                        let taken = if self.decrypted.is_empty() { sink.take(record.payload) } else { 0 };
                        self.decrypted.extend_from_slice(&record.payload[taken..]);
                    }
                }
                Ok(state) => match follow(state, &mut self.unsent, &mut Vec::new())? {
                    StateStep::GoOn
                        if self.unsent.len() - self.unsent_taken <= ANSWERS_BYTES_MAX + self.unsent_bound() => {}
                    StateStep::GoOn => return Err(io::Error::new(io::ErrorKind::InvalidData, "too many TLS messages")),
                    StateStep::Ready | StateStep::NeedsMore => break,
                    StateStep::Ended => {
                        self.ended = true;
                        break;
                    }
                },
                Err(error) => {
                    self.fail(&mut incoming[at..]);
                    return Err(invalid(error));
                }
            }
        }
        // An idle connection keeps no memory.
        self.received = incoming[at..].to_vec();
        Ok(())
    }

    /// The most encrypted bytes that replies alone may leave unsent.
    fn unsent_bound(&self) -> usize {
        if self.owed > 0 { PLAIN_BYTES_MAX + OVERHEAD_BYTES_MAX } else { 0 }
    }

    /// Sends the beginning of `output`. Returns the number of its bytes sent. Bytes on their way must be its beginning in the next call,
    /// too.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: the socket takes no more. Others: the connection is broken.
    pub fn write(&mut self, output: &Output) -> rustix::io::Result<usize> {
        if !self.send_unsent()? {
            return Err(Errno::AGAIN);
        }
        if self.owed == 0 {
            self.encrypt(output)?;
            if !self.send_unsent()? {
                return Err(Errno::AGAIN);
            }
        }
        // Fewer, if the beginning of the replies went to a file meanwhile and comes back in pieces.
        let sent = self.owed.min(output.len());
        self.owed -= sent;
        Ok(sent)
    }

    /// Encrypts the beginning of `output`, sends as much as the socket takes and keeps the rest.
    fn encrypt(&mut self, output: &Output) -> rustix::io::Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { plain, outgoing, .. } = scratch;
            let mut slices = output.slices();
            let Some(first) = slices.next() else { return Ok(()) };
            let plain = if first.len() >= GATHERED_BYTES_MAX {
                &first[..first.len().min(PLAIN_BYTES_MAX)]
            } else {
                gather(first, slices, plain)
            };
            let len = self.encrypt_slice(plain, outgoing)?;
            self.owed = plain.len();
            let sent = match rustix::net::send(&self.tcp, &outgoing[..len], SendFlags::NOSIGNAL) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(error) => return Err(error),
            };
            if sent < len {
                self.unsent = outgoing[sent..len].to_vec();
            }
            Ok(())
        })
    }

    fn encrypt_slice(&mut self, plain: &[u8], outgoing: &mut [u8]) -> rustix::io::Result<usize> {
        if self.failed {
            return Err(Errno::IO);
        }
        let mut len = 0;
        loop {
            // With the incomplete record or message: the session has noted its position in it.
            let UnbufferedStatus { mut discard, state } = self.session.process_tls_records(&mut self.received);
            let mut done = None;
            match state.map_err(|_| Errno::IO)? {
                // These data came with the handshake's last message, and nothing has been read yet.
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|_| Errno::IO)?;
                        discard += record.discard;
                        self.decrypted.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::WriteTraffic(mut traffic) => {
                    done = Some(traffic.encrypt(plain, &mut outgoing[len..]).map_err(|_| Errno::IO)?);
                }
                // New keys, before the data encrypted by them.
                ConnectionState::EncodeTlsData(mut data) => {
                    len += data.encode(&mut outgoing[len..]).map_err(|_| Errno::IO)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.ended = true,
                _ => return Err(Errno::IO),
            }
            self.received.drain(..discard);
            if let Some(more) = done {
                return Ok(len + more);
            }
        }
    }

    /// Sends kept encrypted bytes. Returns false if some are left.
    fn send_unsent(&mut self) -> rustix::io::Result<bool> {
        while self.unsent_taken < self.unsent.len() {
            match rustix::net::send(&self.tcp, &self.unsent[self.unsent_taken..], SendFlags::NOSIGNAL) {
                Ok(sent) => self.unsent_taken += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if self.unsent_taken > 0 {
            (self.unsent, self.unsent_taken) = (Vec::new(), 0);
        }
        Ok(true)
    }

    /// Announces the end of data to the peer, if the socket takes it. Without it the peer can't distinguish the end from a cut.
    fn say_goodbye(&mut self) {
        if self.failed || self.owed > 0 || !self.unsent.is_empty() {
            return;
        }
        let mut goodbye = [0; 256];
        // With the incomplete record, as for encryption.
        let UnbufferedStatus { state, .. } = self.session.process_tls_records(&mut self.received);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state
            && let Ok(len) = traffic.queue_close_notify(&mut goodbye)
        {
            let _ = rustix::net::send(&self.tcp, &goodbye[..len], SendFlags::NOSIGNAL);
        }
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

/// The next step for a state without data.
enum StateStep {
    /// Ask the session again.
    GoOn,
    /// None: data may go both ways.
    Ready,
    /// Receive more from the peer.
    NeedsMore,
    /// None: the peer has ended its data.
    Ended,
}

/// Handles a state, except reading and writing data. Data that came with a handshake go to `decrypted`.
fn follow(
    state: ConnectionState<'_, '_, ServerConnectionData>,
    unsent: &mut Vec<u8>,
    decrypted: &mut Vec<u8>,
) -> io::Result<StateStep> {
    match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let at = unsent.len();
            let missing = match data.encode(&mut []) {
                Err(EncodeError::InsufficientSize(error)) => error.required_size,
                _ => 0,
            };
            unsent.resize(at + missing, 0);
            data.encode(&mut unsent[at..]).map_err(io::Error::other)?;
        }
        ConnectionState::TransmitTlsData(data) => data.done(),
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                decrypted.extend_from_slice(record.map_err(invalid)?.payload);
            }
        }
        ConnectionState::WriteTraffic(_) => return Ok(StateStep::Ready),
        ConnectionState::BlockedHandshake => return Ok(StateStep::NeedsMore),
        ConnectionState::PeerClosed | ConnectionState::Closed => return Ok(StateStep::Ended),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown state of TLS")),
    }
    Ok(StateStep::GoOn)
}

/// Combines small pieces of replies for one record.
fn gather<'p>(first: &[u8], rest: impl Iterator<Item = &'p [u8]>, plain: &'p mut Vec<u8>) -> &'p [u8] {
    plain.clear();
    plain.extend_from_slice(first);
    for slice in rest {
        let room = GATHERED_BYTES_MAX - plain.len();
        plain.extend_from_slice(&slice[..slice.len().min(room)]);
        if slice.len() >= room {
            break;
        }
    }
    plain
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Receives available bytes. Returns 0 at the end, and `None` if there are none yet.
fn receive(tcp: &TcpStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(tcp, &mut *into, RecvFlags::empty()) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::ring;
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use super::*;

    type Client = StreamOwned<ClientConnection, TcpStream>;

    /// The configurations of a server and its client.
    fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(ring::default_provider());
        let server =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let der = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let server = server.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], der).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        (Arc::new(server), Arc::new(client))
    }

    /// The server's side of a newly accepted connection, and the peer's socket.
    fn accepted(config: Arc<ServerConfig>) -> (TlsStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        (TlsStream::accept(far, config).unwrap(), near)
    }

    /// Both ends of a connection after its handshake.
    fn pair() -> (TlsStream, Client) {
        let (server, client) = configs();
        let client = ClientConnection::new(client, ServerName::try_from("localhost").unwrap()).unwrap();
        let (mut stream, near) = accepted(server);
        let mut client = StreamOwned::new(client, near);
        let shaking = std::thread::spawn(move || {
            client.write_all(b"first").unwrap();
            client
        });
        while stream.shake_hands().unwrap() != Handshake::Done {
            std::thread::yield_now();
        }
        (stream, shaking.join().unwrap())
    }

    #[test]
    fn data_received_with_the_handshake_are_read_after_a_send() {
        let (mut stream, mut client) = pair();
        assert_eq!(read(&mut stream, &mut [0; 16]), "first".len());
        client.write_all(b"second").unwrap();
        client.write_all(b"third").unwrap();
        // The state that the handshake leaves.
        stream.is_fresh = true;
        while stream.received.len() < 2 * 22 + "secondthird".len() {
            let _ = stream.receive_handshake().unwrap();
        }
        let mut output = Output::from(b"hello".to_vec());
        assert_eq!(stream.write(&output).unwrap(), 5);
        output.advance(5);
        let mut got = [0; 5];
        client.read_exact(&mut got).unwrap();
        assert!(&got == b"hello" && stream.is_pending());
        let mut into = [0; 32];
        assert_eq!((read(&mut stream, &mut into), &into[..11]), (11, &b"secondthird"[..]));
    }

    #[test]
    fn a_handshake_may_end_amid_a_message() {
        let (mut stream, mut near) = accepted(configs().0);
        // Two records of 16 KB of a message of 60,000 bytes.
        let record = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xea, 0x60], &[0; 0x3ffc]].concat();
        near.write_all(&[record, [&[22, 3, 3, 0x40, 0][..], &[0; 0x4000]].concat()].concat()).unwrap();
        while stream.received.len() < 2 * 0x4005 {
            assert_eq!(stream.shake_hands().unwrap(), Handshake::Reads);
        }
        assert!(stream.handshake_bytes() >= SESSION_BYTES + 2 * 0x4005);
        drop(stream);
    }

    /// Reads until data come.
    fn read(stream: &mut TlsStream, into: &mut [u8]) -> usize {
        loop {
            match stream.read(into).unwrap() {
                Some(count) => return count,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn data_beyond_the_readers_room_are_kept_and_pending() {
        let (mut stream, mut client) = pair();
        let mut little = [0; 3];
        assert!(stream.is_pending(), "what came with the handshake is announced by no poller");
        assert_eq!(read(&mut stream, &mut little), 3);
        assert!(stream.is_pending() && &little == b"fir");
        assert_eq!((read(&mut stream, &mut little), &little[..2]), (2, &b"st"[..]));
        assert_eq!(stream.read(&mut little).unwrap(), None);
        assert!(!stream.is_pending() && stream.decrypted.capacity() == 0 && stream.received.capacity() == 0);
        // Through a vector, up to its capacity.
        let sent: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || {
            client.write_all(&copy).unwrap();
            client
        });
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let mut room = Vec::with_capacity(1000);
            if let Some(count) = stream.read_more(&mut room).unwrap() {
                assert_eq!((count, room.capacity()), (room.len(), 1000));
                got.extend(room);
            }
        }
        assert!(got == sent);
        let mut client = writing.join().unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        assert_eq!((read(&mut stream, &mut little), stream.is_pending()), (0, true));
    }

    #[test]
    fn replies_count_as_sent_once_the_socket_has_taken_them_even_if_they_come_back_in_pieces() {
        let (mut stream, mut client) = pair();
        // Closing a socket with unread data would reset the connection.
        assert_eq!(read(&mut stream, &mut [0; 16]), "first".len());
        let sent: Vec<u8> = (0..20_000_000u32).map(|i| (i % 249) as u8).collect();
        let expected = sent.clone();
        let mut output = Output::from(sent.clone());
        // The client reads nothing until the socket is full.
        let mut at = 0;
        let full = loop {
            match stream.write(&output) {
                Ok(count) => {
                    at += count;
                    output.advance(count);
                }
                Err(error) => break error,
            }
        };
        assert_eq!((full, output.len()), (Errno::AGAIN, sent.len() - at));
        assert!(stream.owed > 0 && stream.unsent.len() <= PLAIN_BYTES_MAX + OVERHEAD_BYTES_MAX);
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).unwrap();
            (got == expected, client)
        });
        // In pieces shorter than the data already encrypted, like from a file.
        while at < sent.len() {
            let end = sent.len().min(at + 1000);
            let mut piece = Output::from(sent[at..end].to_vec());
            while !piece.is_empty() {
                match stream.write(&piece) {
                    Ok(count) => {
                        at += count;
                        piece.advance(count);
                    }
                    Err(error) => {
                        assert_eq!(error, Errno::AGAIN);
                        std::thread::yield_now();
                    }
                }
            }
        }
        let (is_same, mut client) = reading.join().unwrap();
        assert!(is_same);
        drop(stream);
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the end is said");
    }
}
