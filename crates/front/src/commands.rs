//! Commands as JSON: `["SET", "key", 1]`, and arrays of commands.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;

/// A command: its name and its arguments.
pub type Words = Vec<Vec<u8>>;

/// Parses one command.
///
/// # Errors
/// Returns an error text for the client.
pub fn one(json: &[u8]) -> Result<Words, String> {
    let words: Vec<&RawValue> = serde_json::from_slice(json).map_err(|error| {
        format!("ERR the body must be one command as a JSON array, such as [\"GET\",\"key\"]: {error}")
    })?;
    arguments(&words)
}

/// Parses several commands.
///
/// # Errors
/// Returns an error text for the client.
pub fn many(json: &[u8]) -> Result<Vec<Words>, String> {
    let commands: Vec<Vec<&RawValue>> = serde_json::from_slice(json).map_err(|error| {
        format!("ERR the body must be a JSON array of commands, such as [[\"GET\",\"a\"],[\"GET\",\"b\"]]: {error}")
    })?;
    if commands.is_empty() {
        return Err("ERR there is no command in the body".into());
    }
    commands.iter().map(|words| arguments(words)).collect()
}

fn arguments(words: &[&RawValue]) -> Result<Words, String> {
    if words.is_empty() {
        return Err("ERR a command is empty: its name is missing".into());
    }
    words.iter().map(|word| argument(word.get())).collect()
}

/// Returns an argument's bytes. A number is copied as written, so no digit is lost.
fn argument(json: &str) -> Result<Vec<u8>, String> {
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(json).map(String::into_bytes).map_err(|e| format!("ERR {e}")),
        Some(b'{') => from_base64(json),
        Some(b'n' | b'[') | None => Err("ERR an argument must be a string, a number, true or false".into()),
        Some(_) => Ok(json.as_bytes().to_vec()),
    }
}

/// Decodes bytes that JSON's strings can't represent: `{"base64": "AAE="}`.
fn from_base64(json: &str) -> Result<Vec<u8>, String> {
    const FORM: &str = "ERR an argument that is an object must be of the form {\"base64\": \"...\"}";
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).map_err(|_| FORM.to_owned())?;
    match object.get("base64") {
        Some(serde_json::Value::String(text)) if object.len() == 1 => {
            BASE64_STANDARD.decode(text).map_err(|error| format!("ERR an argument isn't in base64: {error}"))
        }
        _ => Err(FORM.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_bytes() {
        let check = |json: &str, expected: &[&[u8]]| {
            assert_eq!(one(json.as_bytes()).unwrap(), expected.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
        };
        check(r#"["SET", "k", 1]"#, &[b"SET", b"k", b"1"]);
        check(
            r#"["SET", "k", 12345678901234567890.10e5, true, false]"#,
            &[b"SET", b"k", b"12345678901234567890.10e5", b"true", b"false"],
        );
        check(r#"["é\u0000\n", {"base64": "AP8="}]"#, &["é\0\n".as_bytes(), b"\0\xff"]);
        assert_eq!(many(br#"[["PING"],["GET","a"]]"#).unwrap().len(), 2);
    }

    #[test]
    fn invalid_commands_are_refused() {
        for json in
            ["", "{}", "[]", "1", "[[\"GET\"]]", "[null]", "[\"a\",null]", "[\"a\",{\"base64\":1}]", "[\"\\ud800\"]"]
        {
            assert!(one(json.as_bytes()).is_err(), "{json}");
        }
        assert!(one(b"[\"\xff\"]").is_err());
        for json in ["[]", "[[]]", "[\"GET\"]", "[[\"a\",{\"base64\":\"*\"}]]", "[[\"a\"],1]"] {
            assert!(many(json.as_bytes()).is_err(), "{json}");
        }
    }
}
