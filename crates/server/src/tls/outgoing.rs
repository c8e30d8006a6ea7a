//! Encrypted outgoing connections to this server's primary (`tls-replication`).

use std::sync::Arc;

use config::Settings;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::setup::{CertificateFiles, provider, versions};

/// Makes the shared state of these connections from the configuration.
///
/// # Errors
/// The mistake, and the remedy.
pub fn client_config(settings: &Settings) -> Result<Arc<ClientConfig>, String> {
    let mut files = CertificateFiles::of(settings);
    let provider = Arc::new(provider(settings)?);
    let roots = files.authorities()?;
    if roots.is_empty() {
        return Err("tls-replication needs tls-ca-cert-file or tls-ca-cert-dir, to know the primary by".into());
    }
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let chain = chain.map_err(|e| format!("the authorities of primaries can't be used: {e}"))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(&settings.tls_protocols.get())?)
        .map_err(|e| format!("tls-protocols and the ciphers leave nothing to choose from: {e}"))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(chain)));
    let (own, for_clients) = (settings.tls_cert_file.get(), settings.tls_client_cert_file.get());
    let config = if !for_clients.is_empty() {
        let (name, password) = (settings.tls_client_key_file.get(), settings.tls_client_key_file_pass.get());
        let key = files.key("tls-client-key-file", &name, &password)?;
        builder.with_client_auth_cert(files.certificates("tls-client-cert-file", &for_clients)?, key)
    } else if !own.is_empty() {
        let (name, password) = (settings.tls_key_file.get(), settings.tls_key_file_pass.get());
        let key = files.key("tls-key-file", &name, &password)?;
        builder.with_client_auth_cert(files.certificates("tls-cert-file", &own)?, key)
    } else {
        Ok(builder.with_no_client_auth())
    };
    config.map(Arc::new).map_err(|e| format!("the certificate for primaries and its key don't fit each other: {e}"))
}

/// Accepts a certificate for any name that one of the authorities has signed, like Redis does: the setting often names a primary by an
/// address, which certificates seldom contain.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is checked last, after the chain has been found valid.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
