//! Encryption, by rustls over a TCP connection that doesn't block.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};

use crate::config::TlsOptions;
use crate::error::Error;
use crate::stream::Stream;

/// How connections to one server are encrypted: files read, options checked, for any number of connections.
#[derive(Clone, Debug)]
pub struct Encryption {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Encryption {
    /// For connections to `host`, whose certificate must be good for that name unless the options say otherwise.
    ///
    /// # Errors
    /// [`Error::Config`]: a file or a name can't be used.
    pub fn new(options: &TlsOptions, host: &str) -> Result<Encryption, Error> {
        let config = Arc::new(client_config(options)?);
        let name = options.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| wrong("the server's name can't be that of a certificate"))?;
        Ok(Encryption { config, name })
    }

    /// Encrypts a TCP connection that doesn't block, and may be under way still. Reading and writing do the handshake
    /// first. A caller that does both until neither goes on, and waits for writing where [`Stream::wants_write`] says
    /// so, needs nothing else.
    ///
    /// # Errors
    /// [`Error::Config`]: the options don't fit each other.
    pub fn begin(&self, tcp: TcpStream) -> Result<Box<dyn Stream>, Error> {
        self.stream(tcp).map(|stream| Box::new(stream) as Box<dyn Stream>)
    }

    fn stream(&self, tcp: TcpStream) -> Result<TlsStream, Error> {
        let tls = ClientConnection::new(self.config.clone(), self.name.clone());
        Ok(TlsStream { tcp, tls: tls.map_err(|error| wrong(&error.to_string()))?.into(), decrypted: 0 })
    }
}

/// The listening side, for programs that stand before a server: a certificate and its key, for any number of connections.
#[derive(Clone, Debug)]
pub struct Acceptance(Arc<ServerConfig>);

impl Acceptance {
    /// Shows the certificates of the file `cert`, the first of which belongs to the key in the file `key` (both PEM). Clients are not
    /// asked for one.
    ///
    /// # Errors
    /// [`Error::Config`]: a file can't be used.
    pub fn new(cert: &Path, key: &Path) -> Result<Acceptance, Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&error.to_string()))?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
        let config = builder.with_no_client_auth().with_single_cert(certificates(cert)?, key_der);
        Ok(Acceptance(Arc::new(config.map_err(|error| unusable(cert, &error))?)))
    }

    /// Encrypts an accepted connection that doesn't block. Reading and writing do the handshake first, as with [`Encryption::begin`].
    ///
    /// # Errors
    /// [`Error::Config`]: the certificate can't be used.
    pub fn begin(&self, tcp: TcpStream) -> Result<Box<dyn Stream>, Error> {
        let tls = ServerConnection::new(self.0.clone()).map_err(|error| wrong(&error.to_string()))?;
        Ok(Box::new(TlsStream { tcp, tls: tls.into(), decrypted: 0 }))
    }
}

/// Encrypts a TCP connection to `host`.
///
/// # Errors
/// Those of [`HandshakeError`].
pub(crate) fn encrypt(
    tcp: TcpStream,
    host: &str,
    options: &TlsOptions,
    timeout: Duration,
) -> Result<TlsStream, HandshakeError> {
    let mut stream = Encryption::new(options, host)?.stream(tcp)?;
    let TlsStream { tcp, tls, .. } = &mut stream;
    // The handshake may block, within limits; nothing else happens on this connection meanwhile.
    tcp.set_nonblocking(false)?;
    tcp.set_read_timeout(Some(timeout))?;
    tcp.set_write_timeout(Some(timeout))?;
    while tls.is_handshaking() {
        tls.complete_io(tcp).map_err(explained)?;
    }
    tcp.set_nonblocking(true)?;
    Ok(stream)
}

/// Why no encrypted stream came about.
pub(crate) enum HandshakeError {
    /// A setting is to blame.
    Config(Error),
    /// The other side, or the way to it.
    Io(io::Error),
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        Self::Config(error)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Explains the error of a server that offers no encryption: its answer, read as TLS, is of no known kind.
fn explained(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => io::Error::new(
            error.kind(),
            "the server doesn't speak TLS at this port: connect without it, or to its TLS port",
        ),
        _ => error,
    }
}

fn wrong(what: &str) -> Error {
    Error::Config(format!("TLS: {what}"))
}

fn client_config(options: &TlsOptions) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(&error.to_string()))?;
    let builder = match options.insecure {
        true => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(provider))),
        false => builder.with_root_certificates(roots(options.ca_file.as_deref())?),
    };
    let (Some(cert), Some(key)) = (&options.cert_file, &options.key_file) else {
        return match (&options.cert_file, &options.key_file) {
            (None, None) => Ok(builder.with_no_client_auth()),
            _ => Err(wrong("a certificate needs its key, and a key its certificate")),
        };
    };
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    builder.with_client_auth_cert(certificates(cert)?, key_der).map_err(|error| unusable(cert, &error))
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    wrong(&format!("{} can't be used: {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(unusable(path, &"it has no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// The authorities of a file, or else the system's.
fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, &error))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    match roots.is_empty() {
        true => Err(wrong("this system has no certificates of authorities; name a file that has")),
        false => Ok(roots),
    }
}

/// An encrypted stream. Both directions share its state, and neither ever waits.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    tls: rustls::Connection,
    /// Bytes that are decrypted and weren't read.
    decrypted: usize,
}

impl TlsStream {
    /// Sends encrypted bytes until none wait or the socket takes no more.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }
}

impl Read for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Servers close without TLS's close_notify. Its lack matters only where a reply is incomplete anyway.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
                Ok(n) => {
                    self.decrypted = self.decrypted.saturating_sub(n);
                    return Ok(n);
                }
            }
            self.tls.read_tls(&mut self.tcp)?;
            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| explained(io::Error::new(ErrorKind::InvalidData, error)))?;
            self.decrypted = state.plaintext_bytes_to_read();
            if self.tls.is_handshaking() {
                // The other side waits for our part of it.
                self.send()?;
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // What waits already goes first; if it can't, no more is taken, so that the waiting bytes stay bounded.
        self.send()?;
        let taken = self.tls.writer().write(buf)?;
        match self.send() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl Stream for TlsStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }

    fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    fn has_buffered(&self) -> bool {
        self.decrypted > 0
    }
}

/// Accepts every certificate, as the caller has asked for. Signatures are still checked.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
