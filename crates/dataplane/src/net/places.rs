//! The places of the data ports ([`base::places`]): one for each accepted connection, from its acceptance to its end.
//!
//! Touched when a connection comes, is known, or goes; never by a request. A stranger that has to go for another
//! connection is named to the loops, of which one has it. Until it has reached a loop it is in the TLS handshake, and the loop refuses it then.

use std::{net::IpAddr, sync::Arc};

use base::places::{Holder, Places, TooMany};
use cluster::auth::Identity;
use parking_lot::Mutex;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct DataPlaces(Arc<Mutex<Places<()>>>);

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    all: DataPlaces,
    /// Names the connection to the loops.
    pub(crate) number: u64,
    holder: Holder,
}

impl DataPlaces {
    pub(crate) fn new(limit: usize) -> Self {
        // As a rule one user is the whole application.
        Self(Arc::new(Mutex::new(Places::new(limit, limit - limit / 4))))
    }

    /// A place for a connection from `address`, and the stranger that has to go for it.
    pub(crate) fn admit(&self, address: IpAddr) -> (Place, Option<u64>) {
        let admitted = self.0.lock().admit(address, ());
        let place = Place { all: self.clone(), number: admitted.number, holder: Holder::Stranger };
        (place, admitted.ended.map(|(number, ())| number))
    }

    /// Connections that are there.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Place {
    /// Whether nobody has logged in or, where no login is asked for, sent a request.
    pub(crate) fn is_strangers(&self) -> bool {
        self.holder == Holder::Stranger
    }

    /// Whether it is a stranger's that had to go for another connection.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_strangers() && !self.all.0.lock().has_stranger(self.number)
    }

    /// The connection is that identity's from now on. Buckets that need no login are users like others.
    ///
    /// # Errors
    /// The user has as many connections as one user may have.
    pub(crate) fn belong_to(&mut self, identity: &Identity) -> Result<(), TooMany> {
        let wanted = identity.holder();
        self.all.0.lock().belong(self.number, &self.holder, &wanted)?;
        self.holder = wanted;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.lock().leave(self.number, &self.holder);
    }
}
