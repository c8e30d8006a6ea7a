//! The languages of the code, each with a client library.

use super::libraries::{
    go_redis, ioredis, jedis, lettuce, node_redis, phpredis, predis, redigo, redis_py, redis_rb, redisson, spring,
};
use super::library::Library;

/// A language, with the client library of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// redis-rb.
    Ruby,
    /// redis-py.
    Python,
    /// ioredis.
    JavaScript,
    /// node-redis.
    NodeRedis,
    /// go-redis.
    Go,
    /// Jedis.
    Java,
    /// Lettuce.
    Lettuce,
    /// phpredis.
    Php,
    /// Predis.
    Predis,
    /// Redigo.
    Redigo,
    /// Spring Data Redis.
    Spring,
    /// Redisson.
    Redisson,
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 12] = [
        Language::Ruby,
        Language::Python,
        Language::JavaScript,
        Language::NodeRedis,
        Language::Go,
        Language::Java,
        Language::Lettuce,
        Language::Php,
        Language::Predis,
        Language::Redigo,
        Language::Spring,
        Language::Redisson,
    ];

    /// Returns the table of the library.
    pub(super) fn table(self) -> &'static Library {
        match self {
            Language::Ruby => &redis_rb::LIBRARY,
            Language::Python => &redis_py::LIBRARY,
            Language::JavaScript => &ioredis::LIBRARY,
            Language::NodeRedis => &node_redis::LIBRARY,
            Language::Go => &go_redis::LIBRARY,
            Language::Java => &jedis::LIBRARY,
            Language::Lettuce => &lettuce::LIBRARY,
            Language::Php => &phpredis::LIBRARY,
            Language::Predis => &predis::LIBRARY,
            Language::Redigo => &redigo::LIBRARY,
            Language::Spring => &spring::LIBRARY,
            Language::Redisson => &redisson::LIBRARY,
        }
    }

    /// The language's name. It names the library, too, if the language has an earlier one.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.table().language
    }

    /// A short name, of small letters and hyphens.
    #[must_use]
    pub fn option(self) -> &'static str {
        self.table().option
    }

    /// Returns the language with this short name.
    #[must_use]
    pub fn of_option(option: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|language| language.option() == option)
    }

    /// The client library's name.
    #[must_use]
    pub fn library(self) -> &'static str {
        self.table().library
    }

    /// Returns the language of a library; `library` is a name and version from CLIENT SETINFO. A library without code of
    /// its own has none: the code of another library would not run. A library names the one that it wraps, too, and is the
    /// one with the longer name: `Lettuce(spring-data-redis_v4.1.2)`.
    #[must_use]
    pub fn of_library(library: &str) -> Option<Language> {
        let library = library.to_lowercase();
        let matched = |language: Language| {
            let names = language.table().identities.iter().filter(|name| library.contains(**name));
            names.map(|name| (name.len(), language)).max_by_key(|(bytes, _)| *bytes)
        };
        let all = Language::ALL.into_iter().filter_map(matched);
        all.max_by_key(|(bytes, _)| *bytes).map(|(_, language)| language)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_implies_its_language() {
        assert_eq!(Language::of_library("redis-py 5.2.0"), Some(Language::Python));
        assert_eq!(Language::of_library("redis-client(redis-rb_v5.0)"), Some(Language::Ruby));
        assert_eq!(Language::of_library("node-redis 5.1.0"), Some(Language::NodeRedis));
        assert_eq!(Language::of_library("ioredis 5.4.1"), Some(Language::JavaScript));
        assert_eq!(Language::of_library("go-redis(,go1.26.0) 9.23.0"), Some(Language::Go));
        assert_eq!(Language::of_library("Lettuce 7.7.0"), Some(Language::Lettuce));
        assert_eq!(Language::of_library("predis 3.6.0"), Some(Language::Predis));
        assert_eq!(Language::of_library("jedis(spring-data-redis_v4.1.2) 7.4.1"), Some(Language::Spring));
        assert_eq!(Language::of_library("Lettuce(spring-data-redis_v4.1.2) 7.5.0"), Some(Language::Spring));
        for other in ["hiredis", "rueidis", ""] {
            assert_eq!(Language::of_library(other), None);
        }
    }
}
