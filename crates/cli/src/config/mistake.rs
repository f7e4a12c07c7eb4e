//! What is wrong in a TOML file, in one line: which key, and what it should be. Repeats no value: a URL may hold a password.

use lockkeeper_core::text::one_line;

pub(super) fn told(text: &str, error: &toml::de::Error) -> anyhow::Error {
    // It repeats names of the file, which may come from anywhere.
    let message = one_line(error.message().trim()).into_owned();
    let before = error.span().and_then(|span| text.get(..span.start));
    let at = |before: &str| format!("line {}: ", before.matches('\n').count() + 1);
    let at = before.map(at).unwrap_or_default();
    match (wrong_kind(&message), before.and_then(key)) {
        (Some((wanted, found)), Some(key)) => anyhow::anyhow!("{at}{} is {wanted}{found}", one_line(&key)),
        (Some((wanted, found)), None) => anyhow::anyhow!("{at}here belongs {wanted}{found}"),
        (None, _) => anyhow::anyhow!("{at}{message}"),
    }
}

/// What was wanted, and what is there instead if it is of another kind.
fn wrong_kind(message: &str) -> Option<(&'static str, &'static str)> {
    let (wrong, wanted) = message.split_once(": ")?.1.rsplit_once(", expected ")?;
    let wanted = match wanted {
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "a string" | "path string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        wanted if wanted.starts_with("struct ") => "a table",
        _ => return None,
    };
    let found = match wrong.split([' ', ',']).next()? {
        _ if message.starts_with("invalid value") => "",
        "string" => ", not a text",
        "integer" => ", not a number",
        "floating" => ", not a fraction",
        "boolean" => ", not true or false",
        "sequence" => ", not a list",
        "map" => ", not a table",
        _ => "",
    };
    message.starts_with("invalid ").then_some((wanted, found))
}

/// The key whose value begins behind this text: its name, and the table that it stands in.
fn key(before: &str) -> Option<String> {
    let line = before.rsplit('\n').next()?;
    let name = line.rsplit_once('=')?.0.trim().rsplit(['{', ',']).next()?.trim();
    let table = before.lines().rev().find_map(|line| line.trim().strip_prefix('[')?.split(']').next());
    let table = table.map(|table| table.trim_start_matches('[').trim()).filter(|_| !line.contains('{'));
    let plain = !name.is_empty() && !name.contains(['=', '#', '\'']);
    plain.then(|| table.map_or_else(|| name.to_owned(), |table| format!("{table}.{name}")))
}

#[cfg(test)]
mod tests {
    use super::super::parsed;

    #[test]
    fn what_is_wrong_is_said_by_its_key_and_by_what_it_should_be() {
        for (text, told) in [
            ("[quota]\nlimit = \"abc\"", "quota.limit is a whole number from 0 to 4294967295, not a text"),
            ("[ports]\nbase = 70000", "ports.base is a whole number from 0 to 65535"),
            ("quota = { limit = \"abc\" }", "limit is a whole number from 0 to 4294967295, not a text"),
            ("[lock]\n# long\ndefault_ttl = 30", "lock.default_ttl is a text, not a number"),
            ("allowed_hosts = \"a\"", "allowed_hosts is a list, not a text"),
            ("allowed_hosts = [\n 7 ]", "here belongs a text, not a number"),
            ("quota = 7", "quota is a table, not a number"),
            ("[[credentials]]\nfile = \"a\"\noperator = 1", "credentials.operator is true or false, not a number"),
        ] {
            let said = parsed(text).expect_err(text).to_string();
            assert!(said.starts_with("line ") && said.ends_with(&format!(": {told}")), "{text}: {said}");
        }
        let broken = parsed("url = \"secret").expect_err("no TOML").to_string();
        assert!(broken.starts_with("line 1: ") && !broken.contains("secret"), "{broken}");
    }
}
