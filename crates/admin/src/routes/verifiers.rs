//! What is kept of a password.

use axum::http::StatusCode;
use cluster::auth::Credentials;
use http::reply::{self, Refusal};

use crate::request::Api;

/// Verifiers of a new password.
pub(super) async fn hashed(password: String) -> Result<Credentials, Refusal> {
    let random = Api::random()?;
    let hashing = tokio::task::spawn_blocking(move || Credentials::new(&password, random));
    hashing
        .await
        .map_err(|_| reply::text(StatusCode::INTERNAL_SERVER_ERROR, "Unexpected server error").into())
}
