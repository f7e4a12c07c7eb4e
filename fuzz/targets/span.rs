//! Lines: what is shown is read back as the same, and lies in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::span::Span;

fuzz_target!(|text: &str| {
    if let Ok(span) = Span::parse(text) {
        assert!(span.start() >= 1 && span.last().is_none_or(|last| last >= span.start()), "{span:?}");
        if !span.is_whole() {
            assert_eq!(Span::parse(&span.to_string()), Ok(span), "{text:?}");
        }
        assert!(span.overlaps(span));
    }
    let mut numbers = text.split(',').map(|number| number.parse::<i128>().ok());
    let (start, end) = (numbers.next().flatten(), numbers.next().flatten());
    if let Ok(span) = Span::checked(start, end) {
        let again = Span::checked(Some(span.start().into()), span.last().map(i128::from));
        assert_eq!(again, Ok(span));
    }
});
