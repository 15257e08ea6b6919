//! Which alerts are mailed, and to where: the settings as Couchbase has them, and what a form says of them. The password of the mail server
//! is kept and never shown.

use cluster::{ClusterError, FieldErrors, Metadata};
use http::form::Form;
use serde_json::{Value, json};
use watch::alerts::{self, ALERTS, About};

/// Where it is kept among the settings.
pub(crate) const MAIL_SETTING: &str = "alerts";
/// Most recipients.
const RECIPIENTS_MAX: usize = 50;
/// Longest text of a parameter, in bytes.
const TEXT_BYTES_MAX: usize = 4_096;
const SENDER: &str = "couchbase@localhost";
const TEST_SUBJECT: &str = "Test email from Couchbase Server";
const TEST_BODY: &str = "This email was sent to you to test the email alert email server settings.";

/// Couchbase's names of alerts, with what they are here. What is nothing here is accepted, and never fires.
static KEYS: [(&str, &[&About]); 24] = [
    ("auto_failover_node", &[&alerts::FAILED_OVER, &alerts::NODE_DOWN]),
    ("auto_failover_maximum_reached", &[]),
    ("auto_failover_other_nodes_down", &[]),
    ("auto_failover_cluster_too_small", &[]),
    ("auto_failover_disabled", &[]),
    ("ip", &[]),
    ("disk", &[&alerts::DISK_LOW, &alerts::DISK_SOON, &alerts::DISK_FILLS]),
    ("overhead", &[&alerts::METADATA_SHARE, &alerts::METADATA_SOON, &alerts::METADATA_FILLS]),
    (
        "ep_oom_errors",
        &[
            &alerts::WRITES_REFUSED,
            &alerts::WRITES_PACED,
            &alerts::MEMORY_CLOSE,
            &alerts::MEMORY_SOON,
            &alerts::MEMORY_FILLS,
        ],
    ),
    ("ep_item_commit_failed", &[&alerts::SYNC_FAILED, &alerts::METADATA_STUCK, &alerts::BUCKET_CLOSED]),
    ("audit_dropped_events", &[]),
    ("indexer_ram_max_usage", &[]),
    ("indexer_low_resident_percentage", &[]),
    ("ep_clock_cas_drift_threshold_exceeded", &[]),
    (
        "communication_issue",
        &[
            &alerts::NODE_DOWN,
            &alerts::NO_TOUCH,
            &alerts::NO_MAJORITY,
            &alerts::LEASE_LATE,
            &alerts::PROBE_SILENT,
            &alerts::TWO_GROUPS,
        ],
    ),
    ("time_out_of_sync", &[&alerts::CLOCK_SKEW]),
    ("disk_usage_analyzer_stuck", &[]),
    ("cert_expires_soon", &[&alerts::CERTIFICATE_ENDS, &alerts::AUTHORITY_ENDS]),
    ("cert_expired", &[&alerts::CERTIFICATE_ENDS, &alerts::AUTHORITY_ENDS]),
    ("memory_threshold", &[]),
    ("history_size_warning", &[]),
    ("memcached_connections", &[]),
    ("disk_guardrail", &[&alerts::DISK_LOW]),
    ("stuck_rebalance", &[]),
];

/// A mail server.
#[derive(Clone, PartialEq, Eq)]
pub struct MailServer {
    /// Name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether it is spoken to under TLS only.
    pub encrypt: bool,
    /// Empty: it asks for no login.
    pub user: String,
    /// Of that user.
    pub password: String,
}

/// Which alerts are mailed, and to where.
#[derive(Clone, PartialEq, Eq)]
pub struct MailSettings {
    /// Whether any are.
    pub enabled: bool,
    /// Addresses.
    pub recipients: Vec<String>,
    /// The address that mails are from.
    pub sender: String,
    /// What takes them.
    pub server: MailServer,
    /// Names of alerts, Couchbase's or Settee's.
    pub alerts: Vec<String>,
    /// The same for what a console shows at once. Kept and shown, and nothing more.
    pub pop_up_alerts: Vec<String>,
}

/// A mail.
#[derive(Clone, PartialEq, Eq)]
pub struct Mail {
    /// What takes it.
    pub server: MailServer,
    /// The address that it is from.
    pub sender: String,
    /// Addresses.
    pub recipients: Vec<String>,
    /// What it is about.
    pub subject: String,
    /// Its text.
    pub body: String,
}

/// What has become of a node's mails since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailLog {
    /// Mails that were taken by their server.
    pub sent: u64,
    /// Mails that were given up.
    pub failed: u64,
    /// When and why the last attempt failed, in seconds since 1970.
    pub last_failure: Option<(u64, String)>,
}

fn all_keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|(key, _)| *key)
}

impl Default for MailSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            recipients: Vec::new(),
            sender: SENDER.into(),
            server: MailServer {
                host: "localhost".into(),
                port: 25,
                encrypt: false,
                user: String::new(),
                password: String::new(),
            },
            alerts: all_keys().map(str::to_owned).collect(),
            pop_up_alerts: all_keys().map(str::to_owned).collect(),
        }
    }
}

impl MailSettings {
    /// Those of a cluster.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let Some(kept) = metadata.settings.get(MAIL_SETTING) else { return Self::default() };
        let (usual, server) = (Self::default(), &kept["emailServer"]);
        let text = |value: &Value, usual: &str| value.as_str().unwrap_or(usual).to_owned();
        let list = |name: &str| -> Vec<String> {
            kept[name]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect()
        };
        let port = server["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        Self {
            // Versions that sent no mail kept the form as it came: nobody has seen where that would have mails go.
            enabled: kept["enabled"] == true && server.is_object(),
            recipients: list("recipients"),
            sender: text(&kept["sender"], &usual.sender),
            server: MailServer {
                host: text(&server["host"], &usual.server.host),
                port: port.unwrap_or(usual.server.port),
                encrypt: server["encrypt"] == true,
                user: text(&server["user"], ""),
                password: text(&server["pass"], ""),
            },
            alerts: list("alerts"),
            pop_up_alerts: list("pop_up_alerts"),
        }
    }

    /// Whether an alert is mailed.
    #[must_use]
    pub fn covers(&self, about: &About) -> bool {
        let is_named = |name: &String| {
            name == about.name
                || KEYS
                    .iter()
                    .any(|(key, known)| key == name && known.iter().any(|one| one.name == about.name))
        };
        self.enabled && !self.recipients.is_empty() && self.alerts.iter().any(is_named)
    }

    /// A mail by these settings.
    #[must_use]
    pub fn mail(&self, subject: String, body: String) -> Mail {
        let (server, sender) = (self.server.clone(), self.sender.clone());
        Mail { server, sender, recipients: self.recipients.clone(), subject, body }
    }

    /// With the password where it is kept, and without it where it is shown.
    pub(crate) fn json(&self, password: &str) -> Value {
        json!({
            "recipients": self.recipients, "sender": self.sender, "enabled": self.enabled,
            "emailServer": {
                "user": self.server.user, "pass": password, "host": self.server.host, "port": self.server.port,
                "encrypt": self.server.encrypt,
            },
            "alerts": self.alerts, "pop_up_alerts": self.pop_up_alerts,
        })
    }
}

/// The settings that a form asks for, whatever was kept before, with subject and text of a mail to try them.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn asked_for(form: &Form) -> Result<(MailSettings, String, String), ClusterError> {
    const FIELDS: [&str; 12] = [
        "enabled",
        "recipients",
        "sender",
        "emailUser",
        "emailPass",
        "emailHost",
        "emailPort",
        "emailEncrypt",
        "alerts",
        "pop_up_alerts",
        "subject",
        "body",
    ];
    let mut errors = FieldErrors::new();
    for (name, value) in form.fields() {
        if !FIELDS.contains(&name.as_str()) {
            errors.insert(name.clone(), "Unsupported key".into());
        } else if value.len() > TEXT_BYTES_MAX {
            errors.insert(name.clone(), format!("The value may have {TEXT_BYTES_MAX} bytes at most"));
        }
    }
    let usual = MailSettings::default();
    let text = |name: &str, usual: &str| form.get(name).unwrap_or(usual).trim().to_owned();
    let enabled = form.boolean("enabled", &mut errors);
    let encrypt = form.boolean("emailEncrypt", &mut errors).unwrap_or(false);
    let port = form.integer("emailPort", &mut errors).unwrap_or(usual.server.port);
    let recipients = parts(form.get("recipients").unwrap_or_default());
    for (name, is_there) in [("enabled", enabled.is_some()), ("recipients", form.get("recipients").is_some())]
    {
        if !is_there && !errors.contains_key(name) {
            errors.insert(name.into(), "The value must be supplied".into());
        }
    }
    let sender = text("sender", SENDER);
    if !is_address(&sender) {
        errors.insert("sender".into(), "The value must be a valid email address".into());
    }
    if form.get("recipients").is_some_and(|_| !recipients.iter().all(|one| is_address(one)))
        || recipients.len() > RECIPIENTS_MAX
    {
        let text = "recipients must be a comma separated list of valid email addresses.";
        errors.insert("recipients".into(), text.into());
    } else if form.get("recipients").is_some() && recipients.is_empty() {
        errors.insert("recipients".into(), "Value must not be empty".into());
    }
    let host = text("emailHost", &usual.server.host);
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        errors.insert("emailHost".into(), "The value must be a host name or an address".into());
    }
    let mut names = |name: &str| names_of_alerts(form, name, &mut errors);
    let (alerts, pop_up_alerts) = (names("alerts"), names("pop_up_alerts"));
    ClusterError::unless_empty(errors)?;
    let password = form.get("emailPass").unwrap_or_default().to_owned();
    let server = MailServer { host, port, encrypt, user: text("emailUser", ""), password };
    let enabled = enabled.unwrap_or(false);
    let settings = MailSettings { enabled, recipients, sender, server, alerts, pop_up_alerts };
    Ok((settings, text("subject", TEST_SUBJECT), text("body", TEST_BODY)))
}

fn names_of_alerts(form: &Form, name: &str, errors: &mut FieldErrors) -> Vec<String> {
    let names = parts(form.get(name).unwrap_or_default());
    let own = || ALERTS.iter().map(|about| about.name);
    if !names.iter().all(|name| all_keys().chain(own()).any(|known| known == name)) {
        let valid: Vec<_> = all_keys().chain(own()).collect();
        let text = format!("alerts contained invalid keys. Valid keys are: {}.", valid.join(", "));
        errors.insert(name.into(), text);
    }
    names
}

fn parts(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// One `@` with something before and behind it, and nothing that would end a line or an address of a mail.
fn is_address(text: &str) -> bool {
    let is_plain = text.chars().all(|one| !one.is_whitespace() && !one.is_control() && !"<>,;".contains(one));
    let halves = text.split_once('@');
    is_plain && halves.is_some_and(|(name, at)| !name.is_empty() && !at.is_empty() && !at.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(form: &str) -> Result<MailSettings, Vec<String>> {
        match asked_for(&Form::parse(form.as_bytes()).unwrap()) {
            Ok((settings, ..)) => Ok(settings),
            Err(_) => Err(Vec::new()),
        }
    }

    #[test]
    fn alerts_are_mailed_by_couchbases_names_and_by_their_own() {
        let on = asked("enabled=true&recipients=a@b.c&alerts=disk,hot_key,ip").unwrap();
        let mailed = |settings: &MailSettings| {
            let names = ALERTS.iter().filter(|about| settings.covers(about)).map(|about| about.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(mailed(&on), ["hot_key", "disk_low", "disk_fills_soon", "disk_fills"]);
        let failed_over = asked("enabled=true&recipients=a@b.c&alerts=auto_failover_node").unwrap();
        assert!(failed_over.covers(&alerts::NODE_DOWN), "the nodes that are left tell this one alone");
        assert_eq!(mailed(&asked("enabled=false&recipients=a@b.c&alerts=disk").unwrap()), [""; 0]);
        assert_eq!(mailed(&asked("enabled=true&recipients=a@b.c").unwrap()), [""; 0]);
        let all = MailSettings { enabled: true, recipients: vec!["a@b".into()], ..MailSettings::default() };
        assert!(mailed(&all).contains(&"node_down"));
    }

    #[test]
    fn what_is_kept_is_read_back_with_its_password_and_what_is_shown_has_none() {
        let settings = asked(
            "enabled=true&recipients=a@b.c,%20d@e.f&sender=x@y.z&emailUser=u&emailPass=p%20&emailHost=h&emailPort=587&\
             emailEncrypt=true&alerts=disk",
        )
        .unwrap();
        assert_eq!((settings.recipients.len(), settings.server.password.as_str()), (2, "p "));
        let mut metadata = Metadata::new("c".into(), 64);
        metadata.settings.insert(MAIL_SETTING.into(), settings.json(&settings.server.password));
        assert!(MailSettings::of(&metadata) == settings);
        assert_eq!(settings.json("")["emailServer"]["pass"], "");
    }

    #[test]
    fn what_versions_without_mail_have_kept_sends_none() {
        let mut metadata = Metadata::new("c".into(), 64);
        let kept =
            json!({ "enabled": true, "recipients": ["a@b.c"], "emailHost": "mail", "alerts": ["disk"] });
        metadata.settings.insert(MAIL_SETTING.into(), kept);
        assert!(!MailSettings::of(&metadata).enabled, "it would go to a server that nobody has named");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for wrong in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b\r\nRCPT", "<a@b>", "a@b;c"] {
            assert!(!is_address(wrong), "{wrong:?}");
        }
        assert!(is_address("couchbase@localhost") && is_address("jürgen@example.com"));
        for wrong in
            ["recipients=a@b", "enabled=true", "enabled=x&recipients=a@b", "enabled=true&recipients=a"]
        {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
