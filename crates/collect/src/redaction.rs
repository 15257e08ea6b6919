//! What nobody else is to see: passwords, and names of users.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::Value;

/// An answer without what nobody else is to see: passwords, and names of users. Administrators are shown the passwords of
/// buckets that old clients open by password. In JSON only values are changed, so it stays JSON whatever users are called.
#[must_use]
pub fn cleaned(body: Vec<u8>, redaction: Option<&Redaction>) -> Vec<u8> {
    if let Ok(mut value) = serde_json::from_slice::<Value>(&body) {
        let is_hidden = redaction.is_some_and(|redaction| hide_mail(&mut value, redaction));
        return if clean(&mut value, redaction) || is_hidden { value.to_string().into_bytes() } else { body };
    }
    match redaction {
        Some(redaction) => redaction.apply(&String::from_utf8_lossy(&body)).into_bytes(),
        None => body,
    }
}

/// Replaces whom settings of mail name, if these are some; tells whether. The cluster does not know those as users.
fn hide_mail(settings: &mut Value, redaction: &Redaction) -> bool {
    let Some(server) = settings.get_mut("emailServer") else { return false };
    let hide = |value: Option<&mut Value>| {
        if let Some(Value::String(text)) = value.filter(|value| value.as_str() != Some("")) {
            *text = redaction.hash(text);
        }
    };
    hide(server.get_mut("user"));
    hide(settings.get_mut("sender"));
    settings
        .get_mut("recipients")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .for_each(|one| hide(Some(one)));
    true
}

/// Cleans a value, and tells whether it was changed: numbers of any length stay as they were written where nothing was.
fn clean(value: &mut Value, redaction: Option<&Redaction>) -> bool {
    match value {
        Value::Array(values) => {
            let mut changed = false;
            for value in values {
                changed |= clean(value, redaction);
            }
            changed
        }
        Value::Object(members) => {
            let mut changed = false;
            for (name, value) in members {
                match value {
                    Value::String(text) if is_password(name) && !text.is_empty() => {
                        "(left out)".clone_into(text);
                        changed = true;
                    }
                    value => changed |= clean(value, redaction),
                }
            }
            changed
        }
        Value::String(text) => redaction.is_some_and(|redaction| {
            let without = redaction.apply(text);
            let changed = without != *text;
            *text = without;
            changed
        }),
        _ => false,
    }
}

fn is_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Mail servers have theirs under short names.
    name.contains("password") || name == "pass" || name == "emailpass"
}

/// What stands for names of users.
#[derive(Clone, Debug)]
pub struct Redaction {
    /// The longest first, since one may be in another.
    names: Vec<String>,
    salt: Vec<u8>,
}

impl Redaction {
    /// For users of these names. One name has one hash under one salt.
    #[must_use]
    pub fn with<'a>(names: impl Iterator<Item = &'a str>, salt: Vec<u8>) -> Self {
        let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        Self { names, salt }
    }

    /// The text with every name replaced that is a word of its own.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, name| self.without(&text, name))
    }

    /// What stands for a name.
    fn hash(&self, name: &str) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.salt, name).hash(&mut hasher);
        format!("<ud>{:016x}</ud>", hasher.finish())
    }

    fn without(&self, text: &str, name: &str) -> String {
        let hash = self.hash(name);
        let is_word = |one: char| one.is_alphanumeric() || one == '_' || one == '-';
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(name) {
            let (before, found) = rest.split_at(at);
            let (found, after) = found.split_at(name.len());
            let stands_alone = !before.chars().next_back().or(out.chars().next_back()).is_some_and(is_word)
                && !after.chars().next().is_some_and(is_word);
            out.push_str(before);
            out.push_str(if stands_alone { &hash } else { found });
            rest = after;
        }
        out + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_replaced_where_they_stand_alone() {
        let redaction = Redaction::with(["ann", "ann-marie", "Administrator", ""].into_iter(), vec![7]);
        let text = redaction.apply(r#"{"user":"ann","by":"ann-marie"} annex joanna Administrator=ann"#);
        assert!(!text.contains("\"ann") && !text.contains("Administrator"), "{text}");
        assert!(text.contains(" annex joanna "), "{text}");
        let hashes: BTreeSet<&str> =
            text.split("<ud>").skip(1).filter_map(|part| part.split("</ud>").next()).collect();
        assert_eq!(hashes.len(), 3, "one for each name: {text}");
    }

    #[test]
    fn names_that_are_numbers_or_members_leave_json_what_it_is() {
        let redaction = Redaction::with(["100", "node"].into_iter(), vec![7]);
        let shown = br#"{"node":{"ram":100},"user":"100","log":"node 100 asked"}"#.to_vec();
        let value: Value = serde_json::from_slice(&cleaned(shown, Some(&redaction))).unwrap();
        assert_eq!(value["node"]["ram"], 100);
        assert!(value["user"].as_str().unwrap().starts_with("<ud>"), "{value}");
        let log = value["log"].as_str().unwrap();
        assert!(!log.contains("node") && !log.contains("100"), "{log}");
    }

    #[test]
    fn passwords_of_buckets_are_left_out_and_all_else_stays() {
        let shown =
            br#"[{"name":"b","saslPassword":"carrier-pigeon","quota":{"rawRAM":1.50}},{"saslPassword":""}]"#;
        let text = String::from_utf8(cleaned(shown.to_vec(), None)).unwrap();
        assert!(!text.contains("pigeon") && text.contains("\"saslPassword\":\"(left out)\""), "{text}");
        assert!(text.contains("\"saslPassword\":\"\""), "{text}");
        let mail = br#"{"emailServer":{"user":"u","pass":"carrier"},"emailPass":"pigeon","passed":"x"}"#;
        let text = String::from_utf8(cleaned(mail.to_vec(), None)).unwrap();
        assert!(!text.contains("carrier") && !text.contains("pigeon") && text.contains("\"x\""), "{text}");
        let mail = br#"{"sender":"db@a.example","recipients":["ann@a.example"],"emailServer":{"user":"mailer","pass":"","host":"mx"}}"#;
        assert_eq!(cleaned(mail.to_vec(), None), mail);
        let text = String::from_utf8(cleaned(mail.to_vec(), Some(&Redaction::with([].into_iter(), vec![7]))))
            .unwrap();
        assert!(!text.contains("a.example") && !text.contains("mailer") && text.contains("\"mx\""), "{text}");
        for untouched in [&br#"{ "minLength": 6, "n": 12345678901234567890123 }"#[..], b"# HELP password\n"] {
            assert_eq!(cleaned(untouched.to_vec(), None), untouched);
        }
    }
}
