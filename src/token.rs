//! The random owner value stored at a key.

use std::fmt;

use crate::dice;

/// The value that marks a key as this lease's: 20 bytes from the operating system's generator, in hex.
///
/// A new one is drawn for each round, so that it names one attempt of one client. Whoever has it can
/// release the lease: `Debug` shows its first eight characters only, `Display` the whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; Token::LENGTH]);

impl Token {
    const LENGTH: usize = 40;

    /// Draws a new token.
    pub(crate) fn random() -> Result<Self, rand::rngs::SysError> {
        let mut bytes = [0; Self::LENGTH / 2];
        dice::fill(&mut bytes)?;
        let mut text = [b'0'; Self::LENGTH];
        // Cannot fail: the text is twice as long as the bytes.
        let _ = hex::encode_to_slice(bytes, &mut text);
        Ok(Self(text))
    }

    /// The token as it stands at the key.
    pub fn as_str(&self) -> &str {
        // Hex digits are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", &self.as_str()[..8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_forty_hex_digits_and_never_the_same() {
        let (first, second) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(first, second);
        assert_eq!(hex::decode(first.as_str()).unwrap().len(), 20);
        assert_ne!(hex::decode(first.as_str()).unwrap(), [0; 20]);
        assert_eq!(first.to_string(), first.as_str());
    }

    #[test]
    fn debug_does_not_tell_the_token() {
        let token = Token::random().unwrap();
        let shown = format!("{token:?}");
        assert!(!shown.contains(token.as_str()));
        assert_eq!(shown, format!("Token({}…)", &token.as_str()[..8]));
    }
}
