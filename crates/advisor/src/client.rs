//! The client that a connection belongs to. Findings are counted for each, and added up.

use crate::hash;

/// What is known of a client. Any of it may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its name, by CLIENT SETNAME.
    pub name: String,
    /// Its library and that one's version, by CLIENT SETINFO.
    pub library: String,
    /// The user it is logged in as.
    pub user: String,
    /// Its address, without the port: connections of one program differ in that.
    pub address: String,
}

impl Client {
    /// Bytes of a client's texts; the rest is cut off.
    const TEXT_BYTES_MAX: usize = 64;

    /// The same, each text cut to 64 bytes.
    #[must_use]
    pub fn cut(mut self) -> Client {
        for text in [&mut self.name, &mut self.library, &mut self.user, &mut self.address] {
            text.truncate(text.floor_char_boundary(Client::TEXT_BYTES_MAX));
            text.shrink_to_fit();
        }
        self
    }

    /// Equal for equal clients, in all threads.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let texts = [&self.name, &self.library, &self.user, &self.address];
        texts.iter().fold(0, |hash, text| hash::mix(hash, hash::bytes(0, text.as_bytes())))
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Client>() + self.name.len() + self.library.len() + self.user.len() + self.address.len()
    }
}

impl std::fmt::Display for Client {
    /// The most telling of what is known: `importer (redis-rb 5.0, user app) at 10.0.0.5`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = match self.user.as_str() {
            "" | "default" => String::new(),
            user => format!("user {user}"),
        };
        let details: Vec<&str> = [self.library.as_str(), &user].into_iter().filter(|text| !text.is_empty()).collect();
        let mut parts = Vec::new();
        if !self.name.is_empty() {
            parts.push(self.name.clone());
        }
        if !details.is_empty() {
            let details = details.join(", ");
            parts.push(if self.name.is_empty() { details } else { format!("({details})") });
        }
        if !self.address.is_empty() {
            parts.push(format!("at {}", self.address));
        }
        f.write_str(if parts.is_empty() { "a client" } else { "" })?;
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, library: &str, user: &str, address: &str) -> Client {
        let [name, library, user, address] = [name, library, user, address].map(str::to_owned);
        Client { name, library, user, address }
    }

    #[test]
    fn a_client_is_shown_by_what_is_known() {
        let check = |client: Client, expected: &str| assert_eq!(client.to_string(), expected);
        check(client("importer", "redis-rb 5.0", "app", "10.0.0.5"), "importer (redis-rb 5.0, user app) at 10.0.0.5");
        check(client("", "redis-rb 5.0", "default", "10.0.0.5"), "redis-rb 5.0 at 10.0.0.5");
        check(client("importer", "", "default", ""), "importer");
        check(client("", "", "", "10.0.0.5"), "at 10.0.0.5");
        check(Client::default(), "a client");
    }

    #[test]
    fn each_text_tells_clients_apart() {
        let texts = [
            client("a", "", "", ""),
            client("", "a", "", ""),
            client("", "", "a", ""),
            client("", "", "", "a"),
            Client::default(),
        ];
        let hashes: std::collections::HashSet<u64> = texts.iter().map(Client::hash).collect();
        assert_eq!(hashes.len(), texts.len());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let cut = client(&"ü".repeat(1000), "", "", "").cut();
        assert_eq!(cut.name, "ü".repeat(32));
    }
}
