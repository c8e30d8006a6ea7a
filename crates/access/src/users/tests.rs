use super::*;
use engine::registry::table;

fn names(users: &Users) -> Vec<String> {
    users.all().iter().map(|user| user.shown().to_string()).collect()
}

#[test]
fn the_default_user_is_open_until_it_has_a_password_or_is_off() {
    let users = Users::new(table());
    assert!(users.is_default_open() && users.with_password(b"default", b"any").is_some() && !users.any_restricted());
    users.require_password("secret");
    assert!(!users.is_default_open() && users.with_password(b"default", b"any").is_none());
    assert!(users.with_password(b"default", b"secret").is_some());
    // An unchanged setting doesn't undo the password rule of ACL SETUSER.
    assert!(users.set(b"default", &[b"nopass"], false).is_ok());
    users.require_password("secret");
    assert!(users.is_default_open() && users.default_needs_no_password());
    assert!(users.set(b"default", &[b"off"], false).is_ok());
    assert!(!users.is_default_open() && users.default_needs_no_password());
    users.require_password("");
    assert!(users.set(b"default", &[b"on"], false).is_ok() && users.is_default_open());
    assert!(users.remove(b"default").is_none());
}

#[test]
fn a_file_replaces_all_users_or_none() {
    let users = Users::new(table());
    for name in [&b"a"[..], b"b"] {
        assert!(users.set(name, &[b"on", b">p", b"&x"], false).is_ok());
    }
    let bad = b"user a on\n# no\nuser a off\nuser c +nosuch >x foo bar\nuser d (+get\nuser";
    let error = users.load("/f", bad, false).map(drop).unwrap_err();
    assert_eq!(
        String::from_utf8(error).unwrap(),
        "/f:2 should start with user keyword followed by the username. WARNING: Duplicate user 'a' found on line 3. \
         /f:4: Error in applying operation '+nosuch': Unknown command or category name in ACL. /f:4: Syntax error. \
         /f:5: Unmatched parenthesis in selector definition./f:6 should start with user keyword followed by the \
         username. WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
    assert_eq!(names(&users), ["a", "b", "default"]);
    let before = users.get(b"a").unwrap();
    let changes = users.load("/f", b"\nuser a on nopass +@all ~*\r\n user c off\n", false).unwrap();
    assert_eq!(names(&users), ["a", "c", "default"]);
    assert_eq!(changes.removed.iter().map(|user| user.shown()).collect::<Vec<_>>(), ["b"]);
    assert!(Arc::ptr_eq(&before, &users.get(b"a").unwrap()) && before.permissions().needs_no_password());
    let text = users.file_text();
    let again = Users::new(table());
    assert!(again.load("/f", &text, true).is_ok());
    assert_eq!(again.file_text(), text);
}
