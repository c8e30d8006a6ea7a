//! The shared state of all encrypted connections, made from the configuration: certificate and key, authorities, versions, ciphers.
//!
//! Errors name the directive at fault and the remedy. They are for the log, like in Redis.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{AuthClients, CertificateUser, Settings};
use engine::host::CertificateFigures;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use super::certificate::figures_of;
use super::sessions::Sessions;

/// Number of cached sessions without a configured bound (`tls-session-cache-size 0`): Redis's default.
const SESSIONS_MAX: usize = 20_480;
/// The longest file of certificates or a key in bytes. Longer files are refused.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The shared state of encrypted connections.
pub struct TlsSetup {
    /// For rustls.
    pub config: Arc<ServerConfig>,
    /// The field of a client's certificate that names its user.
    pub user: CertificateUser,
    /// The files read, with the times of their last changes.
    files: Vec<(PathBuf, Option<SystemTime>)>,
}

impl TlsSetup {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// The mistake, and the remedy.
    pub fn read(settings: &Settings) -> Result<TlsSetup, String> {
        let mut files = CertificateFiles::of(settings);
        let chain = files.certificates("tls-cert-file", &settings.tls_cert_file.get())?;
        let key = files.key("tls-key-file", &settings.tls_key_file.get(), &settings.tls_key_file_pass.get())?;
        let provider = Arc::new(provider(settings)?);
        let verifier = verifier(settings, &mut files, &provider)?;
        let versions = versions(&settings.tls_protocols.get())?;
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions);
        let builder =
            builder.map_err(|e| format!("tls-protocols and the ciphers leave nothing to choose from: {e}"))?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|e| format!("tls-cert-file and tls-key-file don't fit each other: {e}"))?;
        config.ignore_client_order = settings.tls_prefer_server_ciphers.get();
        keep_sessions(&mut config, settings);
        Ok(TlsSetup { config: Arc::new(config), user: settings.tls_auth_clients_user.get(), files: files.read })
    }

    /// The figures of the certificates for INFO: see [`engine::host::Host::certificates`].
    #[must_use]
    pub fn certificates(settings: &Settings) -> [Option<CertificateFigures>; 3] {
        [&settings.tls_cert_file, &settings.tls_client_cert_file, &settings.tls_ca_cert_file].map(|name| {
            let found = CertificateFiles::of(settings).certificates("", &name.get()).ok()?;
            found.first().and_then(|certificate| figures_of(certificate))
        })
    }

    /// Returns true if one of the files has changed since it was read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.files.iter().any(|(path, changed)| changed_at(path) != *changed)
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn keep_sessions(config: &mut ServerConfig, settings: &Settings) {
    if !settings.tls_session_caching.get() {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        return;
    }
    let size = usize::try_from(settings.tls_session_cache_size.get()).ok().filter(|&size| size > 0);
    let timeout = Duration::from_secs(settings.tls_session_cache_timeout_s.get().unsigned_abs());
    config.session_storage = Arc::new(Sessions::new(size.unwrap_or(SESSIONS_MAX), timeout));
}

/// Reads the files of certificates and keys, and records their names.
pub(super) struct CertificateFiles<'s> {
    settings: &'s Settings,
    read: Vec<(PathBuf, Option<SystemTime>)>,
}

impl<'s> CertificateFiles<'s> {
    /// No file has been read.
    pub(super) fn of(settings: &'s Settings) -> CertificateFiles<'s> {
        CertificateFiles { settings, read: Vec::new() }
    }
}

impl CertificateFiles<'_> {
    fn bytes(&mut self, directive: &str, name: &str) -> Result<Vec<u8>, String> {
        if name.is_empty() {
            return Err(format!("No {directive} configured: TLS needs one"));
        }
        let path = self.settings.in_dir(name);
        let unusable = |why: &dyn std::fmt::Display| format!("{directive} {} can't be used: {why}", path.display());
        // The time first: a change during the read counts as a later one.
        let changed = changed_at(&path);
        let file = fs::metadata(&path).map_err(|e| unusable(&e))?;
        if file.len() > FILE_BYTES_MAX {
            return Err(unusable(&"it is too long for certificates"));
        }
        let bytes = fs::read(&path).map_err(|e| unusable(&e))?;
        self.read.push((path, changed));
        Ok(bytes)
    }

    pub(super) fn certificates(&mut self, directive: &str, name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
        let bytes = self.bytes(directive, name)?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match all {
            Ok(all) if all.is_empty() => Err(format!("{directive} {name} has no certificate in PEM")),
            Ok(all) => Ok(all),
            Err(error) => Err(format!("{directive} {name} can't be read: {error}")),
        }
    }

    /// Reads a private key, which may be encrypted by a password.
    pub(super) fn key(
        &mut self,
        directive: &str,
        name: &str,
        password: &str,
    ) -> Result<PrivateKeyDer<'static>, String> {
        let bytes = self.bytes(directive, name)?;
        let text = String::from_utf8_lossy(&bytes);
        if let Some(pem) = section(&text, "ENCRYPTED PRIVATE KEY") {
            return decrypted(directive, pem, password);
        }
        if text.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(format!(
                "{directive} {name} is encrypted in an old way: have 'openssl pkcs8 -topk8' write it anew"
            ));
        }
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| format!("{directive} {name} has no private key: {e}"))
    }

    /// Returns the certificates of authorities in a file and in all files of a directory.
    pub(super) fn authorities(&mut self) -> Result<RootCertStore, String> {
        let (file, directory) = (self.settings.tls_ca_cert_file.get(), self.settings.tls_ca_cert_dir.get());
        let mut roots = RootCertStore::empty();
        if !file.is_empty() {
            for certificate in self.certificates("tls-ca-cert-file", &file)? {
                roots.add(certificate).map_err(|e| format!("tls-ca-cert-file {file} can't be used: {e}"))?;
            }
        }
        if !directory.is_empty() {
            let path = self.settings.in_dir(&directory);
            let entries = fs::read_dir(&path).map_err(|e| format!("tls-ca-cert-dir {directory} can't be read: {e}"))?;
            for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
                // Like with OpenSSL, the directory may contain other files, too.
                let name = path.to_string_lossy().into_owned();
                let certificates = self.certificates("tls-ca-cert-dir", &name).unwrap_or_default();
                roots.add_parsable_certificates(certificates);
            }
        }
        Ok(roots)
    }
}

/// Returns the part of a PEM file with this label.
fn section<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let at = text.find(&begin)?;
    let len = text[at..].find(&end)? + end.len();
    Some(&text[at..at + len])
}

/// Decrypts a key in PKCS #8 with a password.
fn decrypted(directive: &str, pem: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{directive} can't be decrypted by {directive}-pass: {why}");
    let (_, document) = pkcs8::Document::from_pem(pem).map_err(|e| wrong(&e))?;
    let encrypted = pkcs8::EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(|e| wrong(&e))?;
    let key = encrypted.decrypt(password).map_err(|e| wrong(&e))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

fn verifier(
    settings: &Settings,
    files: &mut CertificateFiles<'_>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let asks = settings.tls_auth_clients.get();
    if asks == AuthClients::No {
        return Ok(None);
    }
    let roots = files.authorities()?;
    if roots.is_empty() {
        return Err(
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-auth-clients is not 'no'".into()
        );
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if asks == AuthClients::Optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map(Some).map_err(|e| format!("the authorities of clients can't be used: {e}"))
}

/// Parses `tls-protocols`: words separated by blanks, in any case. No word means all versions.
pub(super) fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut all: Vec<&'static SupportedProtocolVersion> = Vec::new();
    for word in words.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => all.push(&rustls::version::TLS13),
            "tlsv1.2" => all.push(&rustls::version::TLS12),
            "tlsv1" | "tlsv1.1" => return Err(format!("{word} is broken and not supported: use TLSv1.2 or TLSv1.3")),
            _ => return Err(format!("tls-protocols has '{word}': use 'TLSv1.2', 'TLSv1.3', or both in quotes")),
        }
    }
    if all.is_empty() {
        all.extend([&rustls::version::TLS13, &rustls::version::TLS12]);
    }
    Ok(all)
}

/// The supported ciphers of TLS 1.2, by OpenSSL's names.
const TLS12_CIPHERS: [(&str, SupportedCipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", ring::cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", ring::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", ring::cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
/// The supported ciphers of TLS 1.3.
const TLS13_CIPHERS: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", ring::cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", ring::cipher_suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
];
/// OpenSSL's words for many ciphers, which stand for all supported ones. Weak ciphers aren't supported.
const ALL_CIPHERS: [&str; 4] = ["DEFAULT", "ALL", "HIGH", "COMPLEMENTOFDEFAULT"];

pub(super) fn provider(settings: &Settings) -> Result<CryptoProvider, String> {
    let mut suites = chosen("tls-ciphersuites", &settings.tls_ciphersuites.get(), &TLS13_CIPHERS)?;
    suites.extend(chosen("tls-ciphers", &settings.tls_ciphers.get(), &TLS12_CIPHERS)?);
    Ok(CryptoProvider { cipher_suites: suites, ..ring::default_provider() })
}

/// Returns the ciphers of a list with colons, in its order. An empty list means all. A removal (`!NAME`) takes a cipher out of a word
/// for all ciphers. The removal of an unsupported one (`!MD5`) has no effect.
fn chosen(
    directive: &str,
    list: &str,
    all: &[(&str, SupportedCipherSuite)],
) -> Result<Vec<SupportedCipherSuite>, String> {
    let names: Vec<&str> = list.split([':', ',', ' ']).filter(|name| !name.is_empty()).collect();
    let is_out = |name: &str| names.iter().any(|out| out.strip_prefix(['!', '-']) == Some(name));
    let mut chosen: Vec<SupportedCipherSuite> = Vec::new();
    let mut add = |suite| {
        if !chosen.contains(&suite) {
            chosen.push(suite);
        }
    };
    let wanted: Vec<&str> = names.iter().copied().filter(|name| !name.starts_with(['!', '-', '@'])).collect();
    let wants_all = wanted.iter().any(|name| ALL_CIPHERS.contains(name)) || wanted.is_empty();
    for name in &wanted {
        match all.iter().find(|(known, _)| known == name) {
            Some((_, suite)) => add(*suite),
            None if ALL_CIPHERS.contains(name) => {}
            None => {
                let known = all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(":");
                return Err(format!("{directive} has {name}, which is not supported; there are {known}"));
            }
        }
    }
    if wants_all {
        all.iter().filter(|(name, _)| !is_out(name)).for_each(|(_, suite)| add(*suite));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_words() {
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("tlsv1.2 TLSv1.3").unwrap().len(), 2);
        assert_eq!(versions("TLSv1.3").unwrap(), [&rustls::version::TLS13]);
        assert!(versions("TLSv1.1").unwrap_err().contains("use TLSv1.2"));
        assert!(versions("x").is_err());
    }

    #[test]
    fn ciphers_are_chosen_by_openssls_names() {
        let names = |list| {
            let chosen = chosen("tls-ciphers", list, &TLS12_CIPHERS)?;
            let name = |suite: &SupportedCipherSuite| TLS12_CIPHERS.iter().position(|(_, known)| known == suite);
            Ok::<_, String>(chosen.iter().filter_map(name).collect::<Vec<_>>())
        };
        for all in ["", "DEFAULT", "HIGH:!aNULL:!MD5", "DEFAULT:!MEDIUM"] {
            assert_eq!(names(all).unwrap(), [0, 1, 2, 3, 4, 5], "{all}");
        }
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384").unwrap(), [4, 0]);
        assert_eq!(names("DEFAULT:!ECDHE-RSA-AES128-GCM-SHA256").unwrap(), [0, 1, 2, 3, 5]);
        assert!(names("RC4-MD5").unwrap_err().contains("there are ECDHE-"));
    }
}
