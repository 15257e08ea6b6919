//! Tables on a terminal.

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let header: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
    let all: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width =
        |column: usize| all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["long cell".into(), "x".into()], vec!["é".into(), "yy".into()]];
        assert_eq!(table(&["A", "B"], rows), "A          B\nlong cell  x\né          yy\n");
    }
}
