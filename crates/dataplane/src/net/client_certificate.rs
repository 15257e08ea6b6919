//! What the certificate that a client has shown makes of its connection to a data port.
//!
//! Whether a certificate is genuine was decided in the handshake (`crate::net::tls`). Here its names become a user, by the settings
//! `clientCertAuth`. A client that needs a certificate and has shown none is turned away. Connections of other nodes ask for a name
//! that only nodes have and show none; nobody but a node logs in on them then.

use cluster::{CertificateUse, Metadata, auth::Identity, is_name_of_node};
use http::ClientChain;
use rustls::Connection;

use crate::net::transport::Transport;

/// What a connection may do because of a client's certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientCertificate {
    /// It could have shown one.
    is_tls: bool,
    shown: Option<ClientChain>,
    /// The user that it names, who exists and is not locked.
    pub(crate) user: Option<Identity>,
    /// Passwords are not taken.
    pub(crate) is_only_way: bool,
    /// The connection has to end.
    pub(crate) is_missing: bool,
}

/// Of a connection whose handshake is done.
pub(crate) fn of(transport: &Transport, metadata: &Metadata) -> ClientCertificate {
    let Transport::Tls(stream) = transport else { return ClientCertificate::default() };
    let Connection::Server(server) = &stream.tls else { return ClientCertificate::default() };
    let shown = ClientChain::of(server);
    let is_for_node = server.server_name().is_some_and(is_name_of_node);
    let user = shown.as_ref().and_then(|shown| shown.user(metadata));
    let is_only_way = are_mandatory(metadata);
    let is_missing = is_only_way && user.is_none() && !is_for_node;
    ClientCertificate { is_tls: true, shown, user, is_only_way, is_missing }
}

fn are_mandatory(metadata: &Metadata) -> bool {
    metadata.client_cert_auth().used == CertificateUse::Mandatory
}

impl ClientCertificate {
    /// Follows a change of the metadata. Returns the user whom it named until now, where that is another one or none by now.
    pub(crate) fn follow(&mut self, metadata: &Metadata) -> Option<Identity> {
        self.is_only_way = self.is_tls && are_mandatory(metadata);
        let named = self.shown.as_ref()?.user(metadata);
        if named == self.user { None } else { std::mem::replace(&mut self.user, named) }
    }
}

#[cfg(test)]
mod tests {
    use crate::net::node_tls::NodeTls;

    use super::*;

    #[test]
    fn nodes_are_known_by_the_names_that_they_dial() {
        for (name, is_node) in [("node-3.settee.internal", true), ("db.example", false), ("", false)] {
            assert_eq!(is_name_of_node(name), is_node, "{name}");
            assert_eq!(NodeTls::default().shown_as(name).is_some(), is_node, "{name}");
        }
    }
}
