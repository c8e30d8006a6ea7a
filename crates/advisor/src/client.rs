//! The client of a connection. Findings are counted by client, and added up in reports.

use resp::request::Args;

use crate::hash;

/// The known attributes of a client. Any of them may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The name, from CLIENT SETNAME.
    pub name: String,
    /// The library and its version, from CLIENT SETINFO.
    pub library: String,
    /// The user it is logged in as.
    pub user: String,
    /// The address without the port: connections of one program have different ports.
    pub address: String,
    /// True if its server is a node of a cluster. A command has keys of one slot there.
    pub in_cluster: bool,
}

impl Client {
    /// Bytes kept of each text.
    const TEXT_BYTES_MAX: usize = 64;

    /// Cuts each text to 64 bytes.
    #[must_use]
    pub fn cut(mut self) -> Client {
        for text in [&mut self.name, &mut self.library, &mut self.user, &mut self.address] {
            text.truncate(text.floor_char_boundary(Client::TEXT_BYTES_MAX));
            text.shrink_to_fit();
        }
        self
    }

    /// Learns from CLIENT SETNAME, CLIENT SETINFO, HELLO and AUTH. Returns true if the command changed an attribute.
    pub fn learn(&mut self, args: &Args<'_>) -> bool {
        let text = |index: usize| String::from_utf8_lossy(args.get(index)).into_owned();
        let is = |index: usize, word: &[u8]| args.get(index).eq_ignore_ascii_case(word);
        if is(0, b"client") && is(1, b"setname") {
            self.name = text(2);
        } else if is(0, b"client") && is(1, b"setinfo") && is(2, b"lib-name") {
            self.library = text(3);
        } else if is(0, b"client") && is(1, b"setinfo") && is(2, b"lib-ver") && !self.library.contains(' ') {
            self.library = format!("{} {}", self.library, text(3));
        } else if is(0, b"auth") && args.len() == 3 {
            self.user = text(1);
        } else if is(0, b"cluster") {
            // Cluster clients ask for the map of the slots.
            self.in_cluster = true;
        } else if is(0, b"hello") {
            return self.learn_from_hello(args);
        } else {
            return false;
        }
        true
    }

    /// `HELLO 3 AUTH user password SETNAME name`.
    fn learn_from_hello(&mut self, args: &Args<'_>) -> bool {
        let text = |index: usize| String::from_utf8_lossy(args.get(index)).into_owned();
        let mut at = 2;
        while at + 1 < args.len() {
            if args.get(at).eq_ignore_ascii_case(b"setname") {
                self.name = text(at + 1);
                at += 2;
            } else {
                self.user = text(at + 1);
                at += 3;
            }
        }
        at > 2
    }

    /// Returns a hash that is equal for equal clients in all threads.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let texts = [&self.name, &self.library, &self.user, &self.address];
        texts.iter().fold(0, |hash, text| hash::mix(hash, hash::bytes(0, text.as_bytes())))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Client>() + self.name.len() + self.library.len() + self.user.len() + self.address.len()
    }
}

/// Returns an address without its port and without the brackets of IPv6.
#[must_use]
pub fn host(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            host.trim_matches(['[', ']'])
        }
        _ => address,
    }
}

impl std::fmt::Display for Client {
    /// Shows the most telling attributes: `importer (redis-rb 5.0, user app) at 10.0.0.5`.
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
        Client { name, library, user, address, in_cluster: false }
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
    fn a_client_says_what_it_is() {
        let mut known = Client::default();
        let mut learn = |line: &str| {
            let args = resp::request::OwnedArgs::new(line.split(' ').map(str::as_bytes));
            known.learn(&args.args());
            known.to_string()
        };
        assert_eq!(learn("client setname importer"), "importer");
        assert_eq!(learn("CLIENT SETINFO LIB-NAME redis-py"), "importer (redis-py)");
        assert_eq!(learn("CLIENT SETINFO LIB-VER 5.0"), "importer (redis-py 5.0)");
        assert_eq!(learn("AUTH secret"), "importer (redis-py 5.0)");
        assert_eq!(learn("AUTH app secret"), "importer (redis-py 5.0, user app)");
        assert_eq!(learn("HELLO 3 AUTH web secret SETNAME shop"), "shop (redis-py 5.0, user web)");
        assert_eq!(learn("HELLO 3 AUTH"), "shop (redis-py 5.0, user web)");
        assert_eq!(learn("SET client setname"), "shop (redis-py 5.0, user web)");
        assert_eq!(learn("CLUSTER SLOTS"), "shop (redis-py 5.0, user web)");
        assert!(known.in_cluster);
    }

    #[test]
    fn a_host_has_no_port() {
        let addresses = ["127.0.0.1:5000", "[::1]:5000", "unix:/tmp/s", "", "x:"];
        assert_eq!(addresses.map(host), ["127.0.0.1", "::1", "unix:/tmp/s", "", "x:"]);
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
