//! Borrowed row-major views with a row stride; lengths are checked when a view is created.

/// Number of rows to prefetch ahead.
#[cfg(target_arch = "x86_64")]
const ROWS_AHEAD: usize = 16;

/// A row-major f32 view `[rows, columns]`, with `stride` values from one row to the next.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    stride: usize,
    kinds: &'a [u8],
}

/// A mutable [`Matrix`].
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

/// Panics unless `length` values hold `rows` rows of `columns` values, `stride` apart.
fn check_fits(length: usize, rows: usize, columns: usize, stride: usize) {
    assert!(columns <= stride, "{columns} columns do not fit a stride of {stride}");
    let needed = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
    assert!(needed <= length, "a {rows} x {columns} view needs {needed} values, not {length}");
}

impl<'a> Matrix<'a> {
    /// Creates a view of the first `rows` rows.
    pub fn new(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check_fits(data.len(), rows, columns, stride);
        Self { data, rows, columns, stride, kinds: &[] }
    }

    /// Returns the view with the kind of each row: the index of its mean in
    /// [`PackedMatrix::around`](crate::PackedMatrix::around). By default all rows are of kind 0.
    #[must_use]
    pub fn with_kinds(self, kinds: &'a [u8]) -> Self {
        assert!(kinds.len() == self.rows, "{} kinds of {} rows", kinds.len(), self.rows);
        Self { kinds, ..self }
    }

    /// Returns the kind of row `i`.
    pub fn kind(&self, i: usize) -> usize {
        self.kinds.get(i).copied().map_or(0, usize::from)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns row `i`.
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        &self.data[i * self.stride..][..self.columns]
    }

    /// Prefetches the row [`ROWS_AHEAD`] rows after row `i`, if rows lie apart. The CPU itself
    /// prefetches only the cache lines that follow those that were read.
    pub(crate) fn fetch_after(&self, i: usize) {
        #[cfg(target_arch = "x86_64")]
        if self.columns < self.stride {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for value in self.get(i + ROWS_AHEAD).unwrap_or_default().iter().step_by(16) {
                // SAFETY: a hint; it reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *value).cast()) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = i;
    }

    /// Returns row `i`, or `None` if there are fewer rows.
    pub(crate) fn get(&self, i: usize) -> Option<&'a [f32]> {
        (i < self.rows).then(|| self.row(i))
    }
}

impl<'a> MatrixMut<'a> {
    /// Creates a view of the first `rows` rows.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check_fits(data.len(), rows, columns, stride);
        Self { data, rows, columns, stride }
    }

    /// Returns the address of a value, to prefetch it.
    pub(crate) fn target(&self, row: usize, column: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(row * self.stride + column)
    }

    /// Returns columns `from..from + width` of row `i`.
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
