//! `tls-auth-clients-user`: the user named by a client's certificate.

use config::CertificateUser;
use engine::host::CertificateFigures;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns the user of a certificate in DER: its subject's common name, or the first URI among its alternative names. Returns `None` if the
/// field is missing, or the configuration takes users from no certificate.
#[must_use]
pub fn user_of(certificate: &[u8], field: CertificateUser) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    match field {
        CertificateUser::Off => None,
        CertificateUser::CommonName => {
            certificate.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
        }
        CertificateUser::Uri => {
            let names = certificate.subject_alternative_name().ok()??.value;
            names.general_names.iter().find_map(|name| match name {
                GeneralName::URI(uri) => Some((*uri).to_owned()),
                _ => None,
            })
        }
    }
}

/// The figures of a certificate in DER for INFO.
#[must_use]
pub fn figures_of(certificate: &[u8]) -> Option<CertificateFigures> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let serial = certificate.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect();
    let ends_s = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
    Some(CertificateFigures { serial, ends_s })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn users_are_named_by_the_field_that_is_asked_for() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "alice");
        let plain = params.clone().self_signed(&key).unwrap();
        params.subject_alt_names.push(SanType::URI("urn:user:bob".try_into().unwrap()));
        let with_uri = params.self_signed(&key).unwrap();
        for (field, expected) in [
            (CertificateUser::Off, [None, None]),
            (CertificateUser::CommonName, [Some("alice"), Some("alice")]),
            (CertificateUser::Uri, [None, Some("urn:user:bob")]),
        ] {
            let users = [&plain, &with_uri].map(|certificate| user_of(certificate.der(), field));
            assert_eq!(users.each_ref().map(Option::as_deref), expected, "{field:?}");
        }
        assert_eq!(user_of(b"no certificate", CertificateUser::CommonName), None);
    }
}
