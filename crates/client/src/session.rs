//! A connection to an interface that answers HTTP, for one request after the other. None of this may be called from asynchronous code.

use http_body_util::BodyExt as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::{
    Result,
    body::broken,
    rest::{Answer, RequestBody, Rest, failed, patient},
};

/// See the module. A connection that is gone is made again by the next request.
pub struct Session {
    rest: Rest,
    runtime: Runtime,
    sender: Option<SendRequest<RequestBody>>,
}

impl Session {
    /// To an interface that is not connected to yet.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn new(rest: Rest) -> Result<Self> {
        Ok(Self { rest, runtime: Builder::new_current_thread().enable_all().build()?, sender: None })
    }

    /// Asks, and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// No connection, the answer is no HTTP, or it did not come in time.
    pub fn get(&mut self, path: &str) -> Result<Answer> {
        let request = self.rest.request_of("GET", path, "", "")?;
        let address = self.rest.resolve()?;
        let (rest, kept) = (&self.rest, self.sender.take());
        let asked = async {
            let kept = match kept {
                Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
                None => None,
            };
            let mut sender = match kept {
                Some(sender) => sender,
                None => {
                    let stream = rest.connect(address).await?;
                    stream.set_nodelay(true)?;
                    let made = http1::handshake(TokioIo::new(stream)).await;
                    let (sender, connection) = made.map_err(|error| failed(broken(&error)))?;
                    tokio::spawn(connection);
                    sender
                }
            };
            let answer = patient(rest.patience(), sender.send_request(request)).await?;
            let code = answer.status().as_u16();
            let body = timeout(rest.patience(), answer.into_body().collect()).await;
            let body = body.map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))?;
            let body = body.map_err(|error| failed(broken(&error)))?.to_bytes().to_vec();
            Result::Ok((sender, Answer { code, body }))
        };
        let (sender, answer) = self.runtime.block_on(asked)?;
        self.sender = Some(sender);
        Ok(answer)
    }
}
