//! Forecasts of `/settee/forecast`, for a terminal.

use serde_json::Value;

use crate::table::table;

const COLUMNS: [&str; 7] =
    ["WHAT", "FIGURE", "LIMIT", "A DAY", "LIKELY REACHED", "MAYBE AS SOON AS", "FORECASTS WERE OFF BY"];

/// What has a date, has been reached or is not known; a line for all of the rest. Then when it was foretold: figures and limits are of that
/// moment, which may be minutes ago.
pub(crate) fn screen(forecasts: &[Value]) -> String {
    let is_shown = |one: &&Value| one["outlook"] != "notInSight" || one["early"].is_string();
    let shown: Vec<Vec<String>> = forecasts.iter().filter(is_shown).map(row).collect();
    let others = forecasts.len() - shown.len();
    let mut screen = if shown.is_empty() { String::new() } else { table(&COLUMNS, shown) };
    match others {
        0 if screen.is_empty() => screen += "Nothing is foretold yet.\n",
        0 => {}
        _ if screen.is_empty() => screen += "Nothing runs out as things go now.\n",
        1 => screen += "One other limit is not in sight.\n",
        _ => screen += &format!("{others} other limits are not in sight.\n"),
    }
    let newest = forecasts.iter().filter_map(|one| one["madeAt"].as_str()).max();
    let (day, time) = newest.and_then(|at| at.split_once('T')).unwrap_or_default();
    if let Some(time) = time.get(..8) {
        screen += &format!("Foretold on {day} at {time} UTC, by the figures of then.\n");
    }
    screen
}

fn row(one: &Value) -> Vec<String> {
    let figure = |name: &str| match (one[name].as_f64(), one["what"] == "objective") {
        (Some(percent), true) => format!("{percent:.1} %"),
        (Some(figure), false) => bytes(figure),
        (None, _) => "-".into(),
    };
    let likely = match one["outlook"].as_str().unwrap_or_default() {
        "reached" => "reached".into(),
        "notEnoughData" => "not enough data".into(),
        "notInSight" => "not in sight".into(),
        _ => day(&one["likely"]),
    };
    let past = one["pastForecasts"].as_array().into_iter().flatten().map(|past| {
        let days = past["days"].as_u64().unwrap_or_default();
        let word = if days == 1 { "day" } else { "days" };
        format!("{:.1} % ({days} {word})", past["percent"].as_f64().unwrap_or_default())
    });
    let past: Vec<String> = past.collect();
    let past = if past.is_empty() { "-".into() } else { past.join(", ") };
    vec![name(one), figure("value"), figure("limit"), figure("perDay"), likely, day(&one["early"]), past]
}

/// What runs out, in words.
pub(crate) fn name(one: &Value) -> String {
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let on = match one["node"].as_str() {
        Some(node) if one["bucket"].is_string() => format!(" on {node}"),
        Some(node) => format!(" of {node}"),
        None => String::new(),
    };
    match text("what").as_str() {
        "memory" => format!("memory of {}{on}", text("bucket")),
        "metadata" => format!("keys and metadata of {}{on}", text("bucket")),
        "objective" => format!("error budget of {}/{}", text("bucket"), text("objective")),
        what => format!("{what}{on}"),
    }
}

/// The day of a moment.
fn day(moment: &Value) -> String {
    moment.as_str().and_then(|text| text.split('T').next()).unwrap_or("-").to_owned()
}

pub(crate) fn bytes(bytes: f64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.into_iter().find(|(size, _)| bytes.abs() >= *size as f64);
    fits.map_or_else(|| format!("{bytes:.0} B"), |(size, unit)| format!("{:.1} {unit}", bytes / size as f64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_a_date_is_shown_and_the_rest_is_counted() {
        let one = |what: &str, outlook: &str| {
            json!({
                "what": what, "bucket": "b", "node": "h:8091", "value": 1_073_741_824.0, "limit": 2_147_483_648.0,
                "perDay": 1_048_576.0, "outlook": outlook, "likely": null, "early": null, "pastForecasts": [],
            })
        };
        assert_eq!(screen(&[]), "Nothing is foretold yet.\n");
        assert_eq!(screen(&[one("memory", "notInSight")]), "Nothing runs out as things go now.\n");
        let mut dated = one("memory", "dated");
        (dated["likely"], dated["early"]) = (json!("2026-12-12T08:00:00Z"), json!("2026-12-10T09:00:00Z"));
        dated["pastForecasts"] = json!([{ "days": 1, "percent": 1.24, "forecasts": 7 }]);
        let mut budget = one("objective", "notEnoughData");
        (budget["node"], budget["objective"], budget["value"]) = (Value::Null, json!("reads"), Value::Null);
        (budget["limit"], budget["perDay"]) = (json!(100.0), Value::Null);
        let told = screen(&[dated, budget, one("metadata", "reached"), one("memory", "notInSight")]);
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[1].starts_with("memory of b on h:8091             1.0 GiB"), "{told}");
        assert!(lines[1].ends_with("1.0 MiB  2026-12-12       2026-12-10        1.2 % (1 day)"), "{told}");
        assert!(
            lines[2].starts_with("error budget of b/reads") && lines[2].contains("not enough data"),
            "{told}"
        );
        assert!(lines[3].contains("reached"), "{told}");
        assert_eq!(lines[4], "One other limit is not in sight.");
        let made = |at: &str| Value::Object([("madeAt".to_owned(), at.into())].into_iter().collect());
        let two = [made("2026-12-01T08:03:07.123Z"), made("2026-12-01T08:01:00.000Z")];
        assert!(screen(&two).ends_with("Foretold on 2026-12-01 at 08:03:07 UTC, by the figures of then.\n"));
    }
}
