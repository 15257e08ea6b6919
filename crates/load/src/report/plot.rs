//! Plots as SVG: axes with round ticks, lines, bars of a heat map. Knows nothing of load.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
/// Most ticks of an axis.
const TICKS: f64 = 8.0;

/// What an axis shows.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) log: bool,
    /// Places and texts of ticks; round numbers if there are none.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to the largest value.
    pub(super) fn linear(label: &'static str, values: impl Iterator<Item = f64>) -> Axis {
        let to = values.fold(0.0, f64::max);
        Axis { label, from: 0.0, to: if to > 0.0 { to } else { 1.0 }, log: false, ticks: Vec::new() }
    }

    /// Whole decades around the values; zeros have no place and are left out.
    pub(super) fn decades(label: &'static str, values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        if high == 0.0 {
            (low, high) = (1.0, 10.0);
        }
        let (from, to) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
        Axis { label, from, to: to.max(from * 10.0), log: true, ticks: Vec::new() }
    }

    fn share(&self, value: f64) -> f64 {
        if self.log {
            (value.max(self.from).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    fn marks(&self) -> Vec<(f64, String)> {
        if !self.ticks.is_empty() {
            return self.ticks.clone();
        }
        if self.log {
            let decades = self.from.log10().round() as i32..=self.to.log10().round() as i32;
            return decades.map(|power| 10f64.powi(power)).map(|value| (value, short(value))).collect();
        }
        let rough = (self.to - self.from) / TICKS;
        let unit = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|m| m * unit).into_iter().find(|step| *step >= rough).unwrap_or(unit);
        let count = ((self.to - self.from) / step).floor() as usize;
        (0..=count).map(|i| self.from + step * i as f64).map(|value| (value, short(value))).collect()
    }
}

/// A number in few characters.
fn short(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

/// A plot that things are drawn into.
pub(super) struct Plot {
    x: Axis,
    y: Axis,
    body: String,
    legend: Vec<(usize, String)>,
}

impl Plot {
    pub(super) fn new(x: Axis, y: Axis) -> Plot {
        Plot { x, y, body: String::new(), legend: Vec::new() }
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let wide = WIDTH - LEFT - RIGHT;
        let high = HEIGHT - TOP - BOTTOM;
        (LEFT + wide * self.x.share(x), TOP + high * (1.0 - self.y.share(y)))
    }

    /// A line through points; `colour` numbers a colour of the page's style.
    pub(super) fn line(&mut self, colour: usize, name: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> =
            points.map(|(x, y)| self.place(x, y)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        // A single point is a line nobody sees.
        if let [only] = &points[..] {
            let (x, y) = only.split_once(',').unwrap_or_default();
            let _ = write!(self.body, "<circle class=\"c{colour} dot\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>");
        } else {
            let _ = write!(self.body, "<polyline class=\"c{colour}\" points=\"{}\"/>", points.join(" "));
        }
        self.legend.push((colour, name.to_owned()));
    }

    /// A filled cell between two corners, with a share of full colour.
    pub(super) fn cell(&mut self, from: (f64, f64), to: (f64, f64), strength: f64, tip: &str) {
        let ((left, bottom), (right, top)) = (self.place(from.0, from.1), self.place(to.0, to.1));
        let (width, height) = ((right - left).max(0.5), (bottom - top).max(0.5));
        let _ = write!(
            self.body,
            "<rect class=\"heat\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill-opacity=\"{strength:.3}\"><title>{tip}</title></rect>"
        );
    }

    /// A dashed level.
    pub(super) fn level(&mut self, y: f64) {
        let ((left, at), (right, _)) = (self.place(self.x.from, y), self.place(self.x.to, y));
        let _ = write!(
            self.body,
            "<line class=\"level\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
    }

    /// The finished picture.
    pub(super) fn svg(&self) -> String {
        let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
        let (floor, ceiling) = (HEIGHT - BOTTOM, TOP);
        for (value, text) in self.x.marks() {
            let (x, _) = self.place(value, self.y.from);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{ceiling}\" y2=\"{floor}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                floor + 15.0
            );
        }
        for (value, text) in self.y.marks() {
            let (_, y) = self.place(self.x.from, value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        let middle = TOP + (floor - ceiling) / 2.0;
        let _ = write!(
            out,
            "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>{}",
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            HEIGHT - 8.0,
            self.x.label,
            self.y.label,
            self.body
        );
        for (i, (colour, name)) in self.legend.iter().enumerate() {
            let x = LEFT + 12.0 + 110.0 * i as f64;
            let _ = write!(
                out,
                "<line class=\"c{colour}\" x1=\"{x}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text x=\"{}\" y=\"{}\">{name}</text>",
                x + 18.0,
                TOP + 8.0,
                TOP + 8.0,
                x + 23.0,
                TOP + 12.0
            );
        }
        out.push_str("</svg>");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_where_the_axes_say() {
        let x = Axis::linear("x", [10.0].into_iter());
        let y = Axis::decades("y", [3.0, 500.0].into_iter());
        assert_eq!((y.from, y.to), (1.0, 1000.0));
        let plot = Plot::new(x, y);
        assert_eq!(plot.place(0.0, 1.0), (LEFT, HEIGHT - BOTTOM));
        let (right, top) = plot.place(10.0, 1000.0);
        assert!((right - (WIDTH - RIGHT)).abs() < 1e-9 && (top - TOP).abs() < 1e-9);
        let (_, third) = plot.place(0.0, 10.0);
        assert!((third - (HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) / 3.0)).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_round_and_few() {
        let texts = |to: f64| Axis::linear("x", [to].into_iter()).marks().into_iter().map(|(_, text)| text);
        assert_eq!(texts(10.0).collect::<Vec<_>>(), ["0", "2", "4", "6", "8", "10"]);
        assert!((2..=9).contains(&texts(123_456.0).count()));
        assert_eq!(texts(100_000.0).next_back().as_deref(), Some("100k"));
        let empty = Axis::decades("y", std::iter::empty());
        assert_eq!(empty.marks().len(), 2);
    }
}
