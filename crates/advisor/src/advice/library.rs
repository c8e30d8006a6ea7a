//! The client libraries: each is a table of its calls and of the code of the remedies, as templates.
//!
//! A template is code with holes in angle brackets. A hole alone in a line takes several lines, with the line's
//! indentation. Lines that begin with `<each>` are the body of a loop over `items`.

use super::syntax::Syntax;

/// A client library.
pub struct Library {
    /// The language's name, with the library's if it is not the language's first.
    pub language: &'static str,
    /// The short name for command lines and style sheets.
    pub option: &'static str,
    /// The library's name.
    pub library: &'static str,
    /// Parts of the names in CLIENT SETINFO, in small letters.
    pub identities: &'static [&'static str],
    /// The language.
    pub syntax: Syntax,
    /// The object with the methods, outside a pipeline and in a pipeline, each with the operator behind it.
    pub client: &'static str,
    pub pipe: &'static str,
    /// The text for the hole `mode` of calls, outside a pipeline and in a pipeline.
    pub modes: [&'static str; 2],
    /// The first argument of all methods.
    pub context: &'static str,
    /// The names of methods.
    pub naming: Naming,
    /// The call of a command without a method: of the client, in a pipeline, and in a pipeline without arguments. Holes:
    /// `mode`, `command`, `arguments` (each after a comma), `added` (each in a call of `add`),
    /// `key`, and for a call in a script `lua` and `passed` (each after a comma).
    pub by_name: [&'static str; 3],
    /// A call in a pipeline, as a statement; holes: `call`, and `replies`, the name of the replies.
    pub queued: &'static str,
    /// The value of a variable as text; hole: `variable`. It is for commands that are sent by name.
    pub text: &'static str,
    /// Statements with and without a use for the reply; holes: `name`, `call`.
    pub assign: &'static str,
    pub statement: &'static str,
    /// All calls outside a pipeline that have methods, if they differ from those in a pipeline; holes as in `calls`.
    pub client_calls: Option<&'static [(&'static str, &'static str)]>,
    /// The calls whose arguments differ in form from the command's; holes: the command's variables, and
    /// `key`, `mode`, `lua` and `passed`.
    pub calls: &'static [(&'static str, &'static str)],
    /// The remedies by command, or by the names in [`super::code`].
    pub forms: &'static [(&'static str, &'static str)],
}

/// The names of a library's methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The command's name in small letters, if [`super::calls`] knows a method.
    Lower,
    /// Names of go-redis.
    Go,
    /// Names of go-redis with a small first letter.
    Camel,
    /// Names of Jedis.
    Java,
    /// The command's name in small letters, if its arguments are the key and variables; except for these commands, which
    /// are sent by name.
    Words(&'static [&'static str]),
    /// No methods: all commands are sent by name, unless the library has a template for them.
    None,
}

/// A hole's name, and the text for it.
pub type Hole<'h> = (&'h str, String);

impl Library {
    /// Returns the first template that the library has under these names.
    pub fn form(&self, names: &[&str]) -> Option<&'static str> {
        names.iter().find_map(|name| find(self.forms, name))
    }
}

/// Returns the value of a key in a table.
pub fn find(table: &[(&'static str, &'static str)], key: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
}

/// Fills the holes of a template. Text that was filled in is not searched for holes.
pub fn fill(template: &str, holes: &[Hole<'_>]) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('<') {
        text += before;
        let named = after.split_once('>');
        let known = named.and_then(|(name, after)| {
            let (_, value) = holes.iter().find(|(hole, _)| *hole == name)?;
            Some((value, after))
        });
        rest = match known {
            Some((value, after)) => {
                text += value;
                after
            }
            None => {
                text.push('<');
                after
            }
        };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_once() {
        let holes = [("key", "<count>".to_owned()), ("count", "5".to_owned())];
        assert_eq!(fill("a<b> <key>, <count>) < x", &holes), "a<b> <count>, 5) < x");
        assert_eq!(fill("List<<key>>", &holes), "List<<count>>");
        assert_eq!(fill("<", &holes), "<");
    }
}
