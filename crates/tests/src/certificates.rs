//! Certificates for tests of TLS, and a Redis that has them.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::server::{Server, free_port};

/// An authority, a server's and a client's certificate of it, in files that go when the test ends.
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// New ones, for `localhost` and `other.example`.
    pub fn create() -> Certificates {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("penstock-tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let certificates = Certificates { directory: std::env::temp_dir().join(name) };
        fs::create_dir_all(&certificates.directory).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        certificates.write("ca.pem", &authority.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned(), "other.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &authority).unwrap();
            certificates.write(&format!("{name}.pem"), &certificate.pem());
            certificates.write(&format!("{name}.key"), &key.serialize_pem());
        }
        certificates
    }

    /// The path of `ca.pem`, `server.pem`, `server.key`, `client.pem` or `client.key`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Redis with an encrypted port, and that port; whether it asks clients for a certificate.
    pub fn server(&self, asks: bool) -> (Server, u16) {
        let port = free_port().unwrap();
        let (cert, key, ca) = (self.text("server.pem"), self.text("server.key"), self.text("ca.pem"));
        let asks = if asks { "yes" } else { "no" };
        let server = Server::oracle(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
            "--tls-auth-clients",
            asks,
        ]);
        (server, port)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
