//! An encrypted connection to a server under test, which can be cut anywhere: sends and receives raw bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use crate::certificates::Certificates;
use crate::conn::PATIENCE;

/// See the module's documentation.
pub struct TlsConn(pub StreamOwned<ClientConnection, TcpStream>);

/// The configuration of a client, for many connections.
#[derive(Clone)]
pub struct TlsClient(Arc<ClientConfig>);

impl TlsClient {
    /// Returns a client that trusts the tests' authority and presents the named certificate, if any.
    pub fn new(certificates: &Certificates, shows: Option<&str>) -> TlsClient {
        TlsClient::with_versions(certificates, shows, rustls::ALL_VERSIONS)
    }

    /// Returns a client with only these versions of TLS.
    pub fn with_versions(
        certificates: &Certificates,
        shows: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificates.path("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        TlsClient(Arc::new(match shows {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = vec![CertificateDer::from_pem_file(certificates.path(&format!("{name}.pem"))).unwrap()];
                let key = PrivateKeyDer::from_pem_file(certificates.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        }))
    }

    /// Returns the client without session resumption: each handshake is a full one.
    #[must_use]
    pub fn forgetful(&self) -> TlsClient {
        let mut config = (*self.0).clone();
        config.resumption = rustls::client::Resumption::disabled();
        TlsClient(Arc::new(config))
    }

    /// The bytes of the client's first message.
    pub fn hello(&self) -> Vec<u8> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut bytes = Vec::new();
        ClientConnection::new(self.0.clone(), name).unwrap().write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Connects, and completes the handshake.
    pub fn connect(&self, port: u16) -> io::Result<TlsConn> {
        let mut tcp = TcpStream::connect(("127.0.0.1", port))?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut session = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut tcp)?;
        }
        Ok(TlsConn(StreamOwned::new(session, tcp)))
    }
}

impl TlsConn {
    /// Sends a request and checks the reply.
    pub fn ask(&mut self, request: &str, expected: &str) {
        self.0.write_all(request.as_bytes()).unwrap();
        self.expect(expected.as_bytes());
    }

    /// Sends a request and returns whether the reply was as expected.
    pub fn asks(&mut self, request: &str, expected: &str) -> io::Result<bool> {
        self.0.write_all(request.as_bytes())?;
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply)?;
        Ok(reply == expected.as_bytes())
    }

    /// Reads bytes and checks them.
    pub fn expect(&mut self, expected: &[u8]) {
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply).unwrap();
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        assert!(reply == expected, "{} instead of {}", shown(&reply), shown(expected));
    }

    /// Returns the encrypted form of `plain` without sending it.
    pub fn encrypted(&mut self, plain: &[u8]) -> Vec<u8> {
        self.0.conn.set_buffer_limit(None);
        self.0.conn.writer().write_all(plain).unwrap();
        let mut bytes = Vec::new();
        while self.0.conn.wants_write() {
            self.0.conn.write_tls(&mut bytes).unwrap();
        }
        bytes
    }
}
