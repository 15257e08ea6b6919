//! The service on ports 8092 and 18092, which are those of views. It stores design documents, keeps this node's part of their indexes
//! up to date ([`indexes`]), and answers queries over all nodes ([`queries`]).

mod answer;
mod design;
mod functions;
#[cfg(test)]
mod fuzz;
mod indexes;
mod newest;
mod operations;
mod path;
mod queries;
mod streaming;
mod surface;
mod trial;
mod wanted;

use std::{io, sync::Arc};

use http::{Behind, Surface};
use service::{Answers, Context, Figures, Hearer, Port, Running, Service};

use self::{indexes::Indexes, surface::Views};

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
        let indexes = Indexes::start(context.clone())?;
        Ok(Box::new(Started { surface: Arc::new(Views::new(context, indexes.clone())), indexes }))
    }
}

struct Started {
    surface: Arc<Views>,
    indexes: Indexes,
}

impl Running for Started {
    fn surface(&self) -> Arc<dyn Surface> {
        Arc::clone(&self.surface) as Arc<dyn Surface>
    }

    fn behind(&self) -> Option<Arc<dyn Behind>> {
        Some(Arc::clone(&self.surface) as Arc<dyn Behind>)
    }

    fn hearer(&self) -> Option<Box<dyn Hearer>> {
        Some(self.indexes.hearer())
    }

    fn answers(&self) -> Option<Arc<dyn Answers>> {
        let (rows, indexes) = (self.surface.queries().answers(), self.indexes.clone());
        Some(Arc::new(operations::Answering { rows, indexes }))
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        Some(self.indexes.figures())
    }

    fn stopping(&self) {
        self.surface.queries().stop();
    }

    fn stop(self: Box<Self>) {
        self.surface.queries().stop();
        self.indexes.stop();
    }
}
