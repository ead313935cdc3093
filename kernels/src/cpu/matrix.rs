//! Borrowed row-major views with a row stride; lengths are checked when a view is made.

/// `[rows, columns]` f32, row-major, `stride` values from one row to the next.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    stride: usize,
    kinds: &'a [u8],
}

/// [`Matrix`] that can be written.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    columns: usize,
    stride: usize,
}

/// The place of some values of a [`MatrixMut`]: a hint, never read or written.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX-512's kernels fetch"))]
pub(crate) struct WriteTarget {
    pub(crate) start: *const f32,
    /// From one row to the next.
    pub(crate) stride: usize,
    /// Values in each row.
    pub(crate) width: usize,
}

fn check(length: usize, rows: usize, columns: usize, stride: usize) {
    assert!(columns <= stride, "{columns} columns do not fit a stride of {stride}");
    let needed = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
    assert!(needed <= length, "a {rows} x {columns} view needs {needed} values, not {length}");
}

impl<'a> Matrix<'a> {
    /// A view of the first `rows` rows.
    ///
    /// # Panics
    /// If `columns > stride` or `data` is too short.
    pub fn new(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), rows, columns, stride);
        Self { data, rows, columns, stride, kinds: &[] }
    }

    /// The same view, and of which kind each row is: the number of its mean in
    /// [`PackedMatrix::around`](crate::PackedMatrix::around). Without, all are of kind 0.
    ///
    /// # Panics
    /// If there are not as many as rows.
    #[must_use]
    pub fn with_kinds(self, kinds: &'a [u8]) -> Self {
        assert!(kinds.len() == self.rows, "{} kinds of {} rows", kinds.len(), self.rows);
        Self { kinds, ..self }
    }

    /// The kind of row `i`.
    pub fn kind(&self, i: usize) -> usize {
        self.kinds.get(i).copied().map_or(0, usize::from)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        &self.data[i * self.stride..][..self.columns]
    }

    /// Row `i` if there is one.
    pub(crate) fn get(&self, i: usize) -> Option<&'a [f32]> {
        (i < self.rows).then(|| self.row(i))
    }
}

impl<'a> MatrixMut<'a> {
    /// A view of the first `rows` rows.
    ///
    /// # Panics
    /// If `columns > stride` or `data` is too short.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), rows, columns, stride);
        Self { data, rows, columns, stride }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Where the values from (`row`, `column`) on lie.
    pub(crate) fn target(&self, row: usize, column: usize, width: usize) -> WriteTarget {
        let start = self.data.as_ptr().wrapping_add(row * self.stride + column);
        WriteTarget { start, stride: self.stride, width }
    }

    /// Columns `from..from + width` of row `i`.
    pub(crate) fn part(&mut self, i: usize, from: usize, width: usize) -> &mut [f32] {
        assert!(i < self.rows && from + width <= self.columns, "outside the view");
        &mut self.data[i * self.stride + from..][..width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_may_end_with_its_last_row() {
        let data = [0., 1., 2., 3., 4.];
        assert_eq!(Matrix::new(&data, 2, 2, 3).row(1), [3., 4.]);
    }

    #[test]
    #[should_panic(expected = "needs 6 values")]
    fn a_view_that_is_longer_than_its_data_is_refused() {
        let _ = Matrix::new(&[0.; 5], 2, 3, 3);
    }
}
