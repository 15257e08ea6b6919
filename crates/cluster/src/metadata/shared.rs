//! Serialises what is shared as what it holds, so that copies of the metadata need not copy every vBucket's plan.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().serialize(to)
}

pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Arc<T>, D::Error> {
    T::deserialize(from).map(Arc::new)
}

/// The same of something that may be absent.
pub(crate) mod optional {
    use super::{Arc, Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Arc<T>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_deref().serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<T>>, D::Error> {
        Option::<T>::deserialize(from).map(|value| value.map(Arc::new))
    }
}
