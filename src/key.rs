//! What is locked.

use std::fmt;

use crate::error::InvalidRequest;

/// Keys below this prefix are the library's own.
pub(crate) const RESERVED: &[u8] = b"leasehold:";

/// The key of a lease: any bytes but none. `Display` escapes what is not printable ASCII.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// The bytes of the key, as the user gave them (without the namespace).
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Refuses what cannot be locked.
    pub(crate) fn check(&self) -> Result<(), InvalidRequest> {
        if self.0.is_empty() {
            return Err(InvalidRequest::EmptyKey);
        }
        if self.0.starts_with(RESERVED) {
            return Err(InvalidRequest::ReservedKey { key: self.clone() });
        }
        Ok(())
    }

    /// The name of the key on the nodes.
    pub(crate) fn within(&self, namespace: &[u8]) -> Vec<u8> {
        [namespace, &self.0].concat()
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self(key.as_bytes().to_vec())
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self(key.into_bytes())
    }
}

impl From<&String> for Key {
    fn from(key: &String) -> Self {
        Self::from(key.as_str())
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        Self(key)
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        Self(key.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(key: &[u8; N]) -> Self {
        Self(key.to_vec())
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_key_and_our_own_are_refused() {
        assert!(matches!(Key::from("").check(), Err(InvalidRequest::EmptyKey)));
        assert!(matches!(Key::from("leasehold:node").check(), Err(InvalidRequest::ReservedKey { .. })));
        assert!(Key::from("leasehold").check().is_ok());
    }

    #[test]
    fn binary_keys_show_escaped() {
        let key = Key::from(b"a b\n\xff{");
        assert_eq!(key.to_string(), "a b\\n\\xff{");
        assert_eq!(format!("{key:?}"), "\"a b\\n\\xff{\"");
    }

    #[test]
    fn a_key_is_the_same_bytes_however_it_is_given() {
        let key = Key::from("report");
        assert_eq!(key.as_bytes(), b"report");
        let owned = String::from("report");
        for same in [
            Key::from(&owned),
            Key::from(owned.clone()),
            Key::from(owned.clone().into_bytes()),
            Key::from(owned.as_bytes()),
            Key::from(b"report"),
            Key::from(&key),
        ] {
            assert_eq!(same, key);
        }
    }

    #[test]
    fn the_namespace_stands_before_the_key() {
        assert_eq!(Key::from("report").within(b"billing:"), b"billing:report");
    }
}
