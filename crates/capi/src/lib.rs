//! The service on ports 8092 and 18092, which are those of views. There are no views yet: old clients insist on `couchApiBase` in
//! configurations, so the ports are open, and say to a sender that may ask that what it asks for is missing.
//!
//! Every answer to a sender with the right is one that clients take as final. The Java client of 2014 repeats a request without a
//! pause after a 501, and after any 404 but one whose body names `not_found` together with `missing`.

mod surface;

use std::{io, sync::Arc};

use http::Surface;
use service::{Context, Port, Running, Service};

use self::surface::Views;

/// The ports, plain and under TLS.
const PORTS: &[Port] = &[Port { name: "capi", tls: false }, Port { name: "capi_tls", tls: true }];

/// The service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capi;

impl Service for Capi {
    fn name(&self) -> &'static str {
        "views"
    }

    fn ports(&self) -> &'static [Port] {
        PORTS
    }

    fn start(self: Box<Self>, context: Context) -> io::Result<Box<dyn Running>> {
        Ok(Box::new(Started { surface: Arc::new(Views::new(context)) }))
    }
}

struct Started {
    surface: Arc<Views>,
}

impl Running for Started {
    fn surface(&self) -> Arc<dyn Surface> {
        Arc::clone(&self.surface) as Arc<dyn Surface>
    }

    fn stop(self: Box<Self>) {}
}
