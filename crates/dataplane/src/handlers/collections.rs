//! The collections manifest, whole and by name. What an identity may not see looks as if it did not exist.

use base::{
    Cas, Datatype, Manifest, Status,
    manifest::{self, Scope},
};
use cluster::auth::Privileges;
use protocol::{binary::extras::IdExtras, hello::Feature};

use crate::request::{call::Call, stage::Stop};

/// `GET_COLLECTIONS_MANIFEST`.
pub(crate) fn manifest(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let mut manifest = Manifest::clone(&call.session.bucket()?.engine.manifest());
    let access = call.session.access();
    manifest.scopes.retain(|scope| sees_scope(access, scope));
    for scope in &mut manifest.scopes {
        scope.collections.retain(|collection| access.sees(scope.id, collection.id));
    }
    let json = manifest.to_json().to_string();
    call.answer_json(&json);
    Ok(())
}

/// Whether an identity may know of a scope: it may do something in the whole scope, or in a collection of it.
fn sees_scope(access: &Privileges, scope: &Scope) -> bool {
    access.sees_scope(scope.id)
        || scope.collections.iter().any(|collection| access.sees(scope.id, collection.id))
}

/// `GET_CID`: `scope.collection` in, manifest uid and collection id out.
pub(crate) fn collection_id(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let path = path_of(call)?;
    let (scope, collection) = path.split_once('.').ok_or(BAD_PATH)?;
    check_names([scope, collection])?;
    let manifest = call.session.bucket()?.engine.manifest();
    let scope = manifest.scope(scope).filter(|scope| sees_scope(call.session.access(), scope));
    let scope = scope.ok_or(Stop::Status(Status::UnknownScope))?;
    let collection = if collection.is_empty() { "_default" } else { collection };
    let found = scope.collections.iter().find(|known| known.name == collection);
    let found = found.filter(|found| call.session.access().sees(scope.id, found.id));
    let id = found.ok_or(Stop::Status(Status::UnknownCollection))?.id.get();
    answer(call, &manifest, id);
    Ok(())
}

/// `GET_SID`: `scope` (what follows a dot is ignored) in, manifest uid and scope id out.
pub(crate) fn scope_id(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let path = path_of(call)?;
    let name = path.split_once('.').map_or(path, |(scope, _)| scope);
    check_names([name])?;
    let manifest = call.session.bucket()?.engine.manifest();
    let scope = manifest.scope(name).filter(|scope| sees_scope(call.session.access(), scope));
    let id = scope.ok_or(Stop::Status(Status::UnknownScope))?.id.get();
    answer(call, &manifest, id);
    Ok(())
}

const BAD_PATH: Stop = Stop::Refused(Status::Invalid, "The path is not scope.collection");

/// The path is the value; clients before 7.0 sent it as the key.
fn path_of<'r>(call: &Call<'_, 'r>) -> Result<&'r str, Stop> {
    if !call.session.has(Feature::Collections) {
        return Err(Stop::Refused(Status::NotSupported, "The connection did not negotiate collections"));
    }
    let frame = call.request.frame;
    let path = if frame.key.is_empty() { frame.value } else { frame.key };
    std::str::from_utf8(path).map_err(|_| BAD_PATH)
}

fn check_names<const N: usize>(names: [&str; N]) -> Result<(), Stop> {
    let is_fine = |name: &&str| name.is_empty() || *name == "_default" || manifest::is_valid_name(name);
    if names.iter().all(is_fine) { Ok(()) } else { Err(BAD_PATH) }
}

fn answer(call: &mut Call<'_, '_>, manifest: &Manifest, id: u32) {
    let extras = IdExtras { manifest_uid: manifest.uid, id }.encode();
    call.answer(Cas::NONE, Datatype::RAW, &extras, &[], &[]);
}
