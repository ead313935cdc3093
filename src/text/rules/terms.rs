//! Terms that say how a text may be used.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Match};

use super::characters::look_up;
use super::folding::fold;
use crate::characters::WordClass;

/// Keywords of licences that allow everything (MixtureVitae's code).
pub(super) const KEYWORDS: [&str; 3] = ["cc-by", "cc-0", "creative common"];

/// Names of licences that forbid commercial use or changes, as in texts and addresses of licences.
#[rustfmt::skip]
pub(super) const LICENSE_MARKS: [&str; 13] = [
    "by-nc", "by-nd", "by_nc", "by_nd", "cc by nc", "cc by nd", "cc-nc", "cc-nd", "noncommercial",
    "commons by nc", "commons by nd", "noderivatives", "noderivs",
];

/// Terms that forbid some use: reserved rights, copyright, and the names of `NonCommercial` and
/// `NoDerivatives` in the languages of Creative Commons' licences.
#[rustfmt::skip]
pub(super) const RESTRICTIVE: &[&str] = &[
    // Reserved rights (MixtureVitae's code).
    "all rights reserved", "copyright 19", "copyright 20", "copyright ©", "copyright (c)",
    "copyright by", "©",
    // No commercial use. Names that are also common phrases include the hyphen that precedes them
    // in a licence's name.
    "non-commercial", "non commercial", "nicht kommerziell", "nicht-kommerziell",
    "nichtkommerziell", "keine kommerzielle nutzung", "pas d'utilisation commerciale",
    "utilisation non commerciale", "no comercial", "nocomercial", "uso no comercial",
    "não comercial", "não-comercial", "nãocomercial", "non commerciale", "noncommerciale",
    "niet-commercieel", "niet commercieel", "nietcommercieel", "icke-kommersiell",
    "icke kommersiell", "ickekommersiell", "ikke-kommerciel", "ikke kommerciel", "ikkekommerciel",
    "ikke-kommersiell", "ikke kommersiell", "ikkekommersiell", "ei-kaupallinen", "eikaupallinen",
    "epäkaupallinen", "użycie niekomercyjne", "niekomercyjne", "neužívejte komerčně", "nekomerční",
    "neužívejte dílo komerčně", "nekomerčné", "ne add el!", "nem kereskedelmi", "necomercial",
    "некоммерческая", "некоммерческое использование", "некомерційна", "некомерційне використання",
    "некамерцыйнае", "некомерсиално", "некомерцијално", "nekomercijalno", "nekomercialno",
    "nekomercinis", "nekomerciāls", "mitteäriline", "nekomerca", "μη εμπορική χρήση",
    "όχι εμπορική χρήση", "gayriticari", "gayri ticari", "ticari olmayan", "غير تجاري",
    "غير التجاري", "غیرتجاری", "غیر تجاری", "ללא שימוש מסחרי", "שימוש לא מסחרי", "गैर-व्यावसायिक",
    "गैर-वाणिज्यिक", "অবাণিজ্যিক", "nonkomersial", "non-komersial", "non komersial", "bukan komersial",
    "phi thương mại", "phithươngmại", "ไม่ใช้เพื่อการค้า", "非商业性", "非商業性", "表示-非営利",
    "表示 - 非営利", "저작자표시-비영리", "저작자표시 - 비영리", "არაკომერციული", "ez-komertziala",
    "ezkomertziala",
    // No changes.
    "no derivatives", "no derivative works", "no derivs", "keine bearbeitung",
    "keine bearbeitungen", "keinebearbeitungen", "-pas de modification", "- pas de modification",
    "sin derivadas", "sinderivadas", "sin obra derivada", "sinobraderivada", "sin obras derivadas",
    "sense obra derivada", "senseobraderivada", "sem derivações", "semderivações",
    "sem derivados", "semderivados", "non opere derivate", "nessuna opera derivata",
    "geen afgeleide werken", "geenafgeleidewerken", "inga bearbetningar", "ingabearbetningar",
    "ingen bearbejdelse", "ingen bearbejdelser", "ingenbearbejdelse", "ingen bearbeidelse",
    "ingen bearbeidelser", "ingenbearbeidelse", "-ei muutoksia", "- ei muutoksia", "eimuutoksia",
    "bez utworów zależnych", "nezasahujte do díla", "nezpracovávejte", "žiadne odvodené diela",
    "ne változtasd!", "fără derivate", "fărăderivate", "без производных", "безпроизводных",
    "без похідних", "без производни", "без прерада", "bez prerada", "bezprerada", "brez predelav",
    "όχι παράγωγα έργα", "türetilemez", "بدون اشتقاق", "منع الاشتقاق", "ללא יצירות נגזרות",
    "איסור יצירות נגזרות", "tanpa turunan", "tanpaturunan", "tanpa terbitan", "không phái sinh",
    "khôngpháisinh", "ไม่ดัดแปลง", "ห้ามดัดแปลง", "禁止演绎", "禁止演繹", "禁止改作", "改変禁止", "변경금지",
    "변경 금지", "lan eratorririk gabe", "laneratorririkgabe",
];

/// Terms to search for in a folded text.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) written: Vec<String>,
    pub(super) finder: AhoCorasick,
}

impl Terms {
    /// Folds the terms; fails with a message for one without characters, or for too many.
    pub(super) fn new(written: Vec<String>, kind: Option<AhoCorasickKind>) -> Result<Self, String> {
        let folded: Vec<String> = written.iter().map(|term| fold(term).trim().to_owned()).collect();
        if folded.iter().any(String::is_empty) {
            return Err("a term has no characters".to_owned());
        }
        let finder = AhoCorasick::builder().kind(kind).build(folded).map_err(|e| e.to_string())?;
        Ok(Self { written, finder })
    }

    /// Returns the term, as written, that ends first in a folded text and is not part of a word.
    pub(super) fn find(&self, folded: &str) -> Option<&str> {
        if self.written.is_empty() {
            return None;
        }
        let mut hits = self.finder.find_overlapping_iter(folded);
        let hit = hits.find(|hit| is_whole(hit, folded))?;
        Some(&self.written[hit.pattern()])
    }
}

/// Returns true if no letter at an end of a hit is part of a longer word.
fn is_whole(hit: &Match, folded: &str) -> bool {
    let (term, behind) = (&folded[hit.range()], &folded[hit.end()..]);
    let goes_on = |c: char| match look_up(c).word {
        WordClass::Single => false, // a word by itself
        class => c.is_alphanumeric() || class == WordClass::Mark,
    };
    let starts_within = || last_letter(&folded[..hit.start()]).is_some_and(goes_on);
    !(term.starts_with(is_spaced_letter) && starts_within()
        || last_letter(term).is_some_and(is_spaced_letter) && behind.starts_with(goes_on))
}

/// Returns the last character that is not a mark, of the last eight characters.
fn last_letter(text: &str) -> Option<char> {
    let mut characters = text.chars().rev().take(8);
    characters.find(|c| look_up(*c).word != WordClass::Mark)
}

/// Returns true for a letter of a script with spaces between words.
fn is_spaced_letter(c: char) -> bool {
    c.is_alphabetic() && look_up(c).word != WordClass::Single
}
