//! `polysift devices`: the cards of this machine, and what `--device auto` would take of them.

use serde_json::{Value, json};

use polysift::encoder::{Card, Placement, cards, usable};

use super::{printer, summary};

/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Prints every card, whether it can be used or not.
pub(crate) fn devices(as_json: bool) {
    let found = cards();
    let usable = found.as_ref().map_err(Clone::clone).and_then(|cards| usable(cards));
    let (ordinals, problem) = match usable {
        Ok(ordinals) => (ordinals, None),
        Err(cause) => (Vec::new(), Some(cause.to_string())),
    };
    let auto = Placement::auto(ordinals);
    let cards = found.unwrap_or_default();
    if as_json {
        summary::print_json(&json!({
            "cards": cards.iter().map(describe).collect::<Vec<_>>(),
            "problem": problem,
            "auto": {"device": auto.to_string(), "dtype": auto.dtype()},
        }));
        return;
    }
    if !cards.is_empty() {
        let titles = ["device", "name", "capability", "free", "memory", "usable"];
        let rows = cards.iter().map(row);
        printer::table(
            &[titles.map(str::to_owned).to_vec()].into_iter().chain(rows).collect::<Vec<_>>(),
        );
    }
    // The table says why a card cannot be used.
    if let Some(problem) = problem.filter(|_| cards.is_empty()) {
        printer::line(&format!("no card can be used: {problem}"));
    }
    printer::line(&format!("--device auto takes {auto}, in {}", auto.dtype()));
}

fn capability(card: &Card) -> String {
    let (major, minor) = card.info.compute_capability;
    format!("{major}.{minor}")
}

fn describe(card: &Card) -> Value {
    json!({
        "device": format!("cuda:{}", card.info.ordinal),
        "name": card.info.name,
        "compute_capability": capability(card),
        "free_bytes": card.free_bytes,
        "total_bytes": card.info.total_bytes,
        "usable": card.problem.is_none(),
        "problem": card.problem.as_ref().map(ToString::to_string),
    })
}

fn row(card: &Card) -> Vec<String> {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
    vec![
        format!("cuda:{}", card.info.ordinal),
        card.info.name.clone(),
        capability(card),
        card.free_bytes.map_or("-".to_owned(), gib),
        gib(card.info.total_bytes),
        card.problem.as_ref().map_or("yes".to_owned(), ToString::to_string),
    ]
}
