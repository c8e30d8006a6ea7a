//! Certificates for tests of TLS, and servers that use them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd};

use crate::ports::free_port;
use crate::server::Server;

/// An authority, with certificates for a server and a client, in files that are removed when the test ends.
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Creates certificates for `localhost` and `other.example`.
    pub fn create() -> Certificates {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("penstock-tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let certificates = Certificates { directory: std::env::temp_dir().join(name) };
        fs::create_dir_all(&certificates.directory).unwrap();
        let authority = authority("authority");
        certificates.write("ca.pem", &authority.pem());
        for name in ["server", "client", "default"] {
            certificates.issue(name, &authority, params(name));
        }
        // Certificates that a server must refuse: expired, or from another authority.
        let mut expired = params("client");
        (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        certificates.issue("expired", &authority, expired);
        // A node of a cluster is known by its address.
        let mut node = params("node");
        node.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        certificates.issue("node", &authority, node);
        certificates.issue("stranger", &self::authority("another"), params("client"));
        // The server's replacement certificate.
        certificates.issue("renewed", &authority, params("server"));
        certificates
    }

    /// Writes a certificate and its key to files that begin with `file`.
    fn issue(&self, file: &str, authority: &Authority, params: CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        self.write(&format!("{file}.pem"), &certificate.pem());
        self.write(&format!("{file}.key"), &key.serialize_pem());
    }

    /// Replaces the files of a certificate and its key by those of another one.
    pub fn replace(&self, old: &str, new: &str) {
        for end in ["pem", "key"] {
            fs::copy(self.path(&format!("{new}.{end}")), self.path(&format!("{old}.{end}"))).unwrap();
        }
    }

    /// The path of `ca.pem`, or of NAME`.pem` or NAME`.key`. Names: `server` and its replacement `renewed`, `client`,
    /// `default` (also its common name), `node` (for 127.0.0.1), `expired`, and `stranger`, which another authority has issued.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The path as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Starts Penstock with an encrypted port. Returns the server and the port. `args` are further arguments.
    pub fn penstock(&self, asks: &str, args: &[&str]) -> (Server, u16) {
        let port = free_port().unwrap();
        let number = port.to_string();
        let files = ["server.pem", "server.key", "ca.pem"].map(|name| self.text(name));
        let directives = ["--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"];
        let mut all = vec!["--tls-port", &number, "--tls-auth-clients", asks];
        directives.iter().zip(&files).for_each(|(directive, file)| all.extend([*directive, file]));
        all.extend(args);
        (Server::penstock(&all), port)
    }

    /// Starts Redis with an encrypted port. Returns the server and the port. `asks` is true if clients need a
    /// certificate.
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

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "other.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
