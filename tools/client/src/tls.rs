//! Encryption with rustls over a nonblocking TCP connection.

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

/// TLS settings for connections to one server: files are read and options checked once, for any number of connections.
#[derive(Clone, Debug)]
pub struct Encryption {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Encryption {
    /// Creates the settings for connections to `host`. The server's certificate must be valid for this name unless the
    /// options say otherwise.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if a file or a name is unusable.
    pub fn new(options: &TlsOptions, host: &str) -> Result<Encryption, Error> {
        let config = Arc::new(client_config(options)?);
        let name = options.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| wrong("the server's name isn't valid in a certificate"))?;
        Ok(Encryption { config, name })
    }

    /// Encrypts a nonblocking TCP connection, which may still be connecting. Reads and writes perform the handshake
    /// first. The caller must alternate reads and writes until neither makes progress, and wait for writability if
    /// [`Stream::wants_write`] returns true.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if the options are inconsistent.
    pub fn begin(&self, tcp: TcpStream) -> Result<Box<dyn Stream>, Error> {
        self.stream(tcp).map(|stream| Box::new(stream) as Box<dyn Stream>)
    }

    fn stream(&self, tcp: TcpStream) -> Result<TlsStream, Error> {
        let tls = ClientConnection::new(self.config.clone(), self.name.clone());
        Ok(TlsStream { tcp, tls: tls.map_err(|error| wrong(&error.to_string()))?.into(), decrypted: 0 })
    }
}

/// The server side of TLS, for proxies: a certificate and its key, for any number of connections.
#[derive(Clone, Debug)]
pub struct Acceptance(Arc<ServerConfig>);

impl Acceptance {
    /// Loads the certificates of the file `cert` and the key of its first certificate from the file `key` (both PEM).
    /// Clients are not asked for a certificate.
    ///
    /// # Errors
    /// Returns [`Error::Config`] if a file is unusable.
    pub fn new(cert: &Path, key: &Path) -> Result<Acceptance, Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&error.to_string()))?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
        let config = builder.with_no_client_auth().with_single_cert(certificates(cert)?, key_der);
        Ok(Acceptance(Arc::new(config.map_err(|error| unusable(cert, &error))?)))
    }

    /// Encrypts an accepted nonblocking connection. Reads and writes perform the handshake first, as with
    /// [`Encryption::begin`].
    ///
    /// # Errors
    /// Returns [`Error::Config`] if the certificate is unusable.
    pub fn begin(&self, tcp: TcpStream) -> Result<Box<dyn Stream>, Error> {
        let tls = ServerConnection::new(self.0.clone()).map_err(|error| wrong(&error.to_string()))?;
        Ok(Box::new(TlsStream { tcp, tls: tls.into(), decrypted: 0 }))
    }
}

/// Encrypts a TCP connection to `host`.
///
/// # Errors
/// Returns [`HandshakeError`].
pub(crate) fn encrypt(
    tcp: TcpStream,
    host: &str,
    options: &TlsOptions,
    timeout: Duration,
) -> Result<TlsStream, HandshakeError> {
    let mut stream = Encryption::new(options, host)?.stream(tcp)?;
    let TlsStream { tcp, tls, .. } = &mut stream;
    // The handshake may block, within its timeout. The connection has no other use until it ends.
    tcp.set_nonblocking(false)?;
    tcp.set_read_timeout(Some(timeout))?;
    tcp.set_write_timeout(Some(timeout))?;
    while tls.is_handshaking() {
        tls.complete_io(tcp).map_err(explained)?;
    }
    tcp.set_nonblocking(true)?;
    Ok(stream)
}

/// Reason for a failed handshake.
pub(crate) enum HandshakeError {
    /// A setting is invalid.
    Config(Error),
    /// The server or the network failed.
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

/// Explains the error of a server without TLS: its plain answer has an unknown TLS content type.
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
        Ok(all) if all.is_empty() => Err(unusable(path, &"the file has no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Returns the certificates in a file, or the system's CA certificates.
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
        true => Err(wrong("this system has no CA certificates; name a file with them")),
        false => Ok(roots),
    }
}

/// An encrypted stream. Both directions share its state, and neither ever blocks.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    tls: rustls::Connection,
    /// Number of decrypted bytes that weren't read yet.
    decrypted: usize,
}

impl TlsStream {
    /// Sends encrypted bytes until the buffer is empty or the socket is full.
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
                // Servers close without TLS's close_notify. It would only matter for an incomplete reply, which is an
                // error anyway.
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
                // The server may be waiting for a handshake message.
                self.send()?;
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // Buffered bytes are sent first. If the socket is full, no more bytes are taken, so that the buffer stays
        // bounded.
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

/// Accepts every certificate, as the caller requested. Signatures are still checked.
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
