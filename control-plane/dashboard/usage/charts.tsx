import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

const HEIGHT = 176;
/** Height of the lowest value that a logarithmic axis shows. */
const LOGARITHMIC_MIN = 0.1;

/** One kind of counted things; `tone` is its colour in style/. */
export interface Series {
  readonly name: string;
  readonly tone: string;
}

/** Counts at one place of the horizontal axis, in the order of the series. */
export interface Point {
  readonly title: string;
  readonly values: readonly number[];
}

interface ChartProps {
  readonly label: string;
  readonly unit: string;
  readonly series: readonly Series[];
  readonly points: readonly Point[];
  /** Number of places while there are fewer points, which then stand at the right end. */
  readonly placesMin?: number;
  /** For times, so that slow ones do not hide quick ones; then each point has one value. */
  readonly logarithmic?: boolean;
}

/** Stacked bars with axes and a legend, and with the numbers as a table for users who cannot see the bars. */
export function Bars(props: ChartProps) {
  const { label, unit, series, points } = props;
  const sums = points.map(({ values }) => sumOf(values));
  const max = Math.max(1, ...sums);
  const visible = series.filter((_, i) => points.some(({ values }) => (values[i] ?? 0) > 0));
  return (
    <figure>
      <figcaption>
        <strong>
          {label}
          {unit && `, ${unit}`}
        </strong>
        <Legend of={visible} />
      </figcaption>
      <div
        class="chart"
        role="img"
        aria-label={`${label}: ${points.length} bars, the highest ${amountText(max, unit)}`}
      >
        <Plot {...props} />
      </div>
      <details>
        <summary>As numbers</summary>
        <ul>
          {points
            .filter((_, i) => (sums[i] ?? 0) > 0)
            .map((point) => (
              <li key={point.title}>{describe(point, series, unit)}</li>
            ))}
        </ul>
      </details>
    </figure>
  );
}

/** The drawing, which follows its data, its width and the colours of the scheme. */
function Plot(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const hint = useRef<HTMLDivElement>(null);
  const { points, series } = props;
  const names = series.map(({ name }) => name).join();
  const plot = useRef<uPlot>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(element, hint.current, latest), dataOf(latest.current), element);
    };
    draw();
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', draw);
    const watch = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    watch.observe(element);
    return () => {
      scheme.removeEventListener('change', draw);
      watch.disconnect();
      plot.current?.destroy();
    };
  }, [names]);
  useEffect(() => plot.current?.setData(dataOf(props)), [points]);
  return (
    <>
      <div ref={place} />
      <div ref={hint} class="hint" hidden />
    </>
  );
}

function optionsOf(
  element: HTMLElement,
  hint: HTMLElement | null,
  latest: { readonly current: ChartProps },
): uPlot.Options {
  const { series, logarithmic = false } = latest.current;
  const style = getComputedStyle(element);
  const colorOf = (name: string) => {
    // The property may be light-dark(…), which only a colour of an element resolves.
    element.style.color = `var(--${name})`;
    return style.color;
  };
  const [stroke, line] = [colorOf('quiet'), colorOf('line')];
  const fills = series.toReversed().map(({ tone }) => colorOf(TONES[tone] ?? tone));
  element.style.color = '';
  const bars = uPlot.paths.bars?.({ size: [0.8, 64], align: 0 });
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    scales: {
      x: { time: false, range: () => [-0.5, placesOf(latest.current) - 0.5] },
      y: logarithmic
        ? { distr: 3, log: 10, range: (_, __, max) => [LOGARITHMIC_MIN, Math.max(10, max)] }
        : { range: (_, __, max) => [0, Math.max(1, max) * 1.05] },
    },
    axes: axesOf(latest, { stroke, line, font: `12px ${style.fontFamily}` }),
    // The sum of all comes first, so that each lies above those that it contains.
    series: [
      {},
      ...fills.map(
        (fill): uPlot.Series => ({
          fill,
          width: 0,
          points: { show: false },
          ...(bars ? { paths: bars } : {}),
        }),
      ),
    ],
    hooks: { setCursor: [({ cursor }) => showHint(hint, latest.current, cursor)] },
  };
}

function axesOf(
  latest: { readonly current: ChartProps },
  look: { readonly stroke: string; readonly line: string; readonly font: string },
): uPlot.Axis[] {
  const { logarithmic = false } = latest.current;
  const axis = { stroke: look.stroke, font: look.font, ticks: { show: false } };
  const titleAt = (n: number) => latest.current.points[n - offsetOf(latest.current)]?.title ?? '';
  const amountAt = (value: number | null) => value?.toLocaleString() ?? '';
  return [
    {
      ...axis,
      grid: { show: false },
      size: 28,
      space: 120,
      values: (_, places) => places.map(titleAt),
      incrs: [1, 2, 4, 6, 8, 12, 16, 24, 48],
    },
    {
      ...axis,
      grid: { stroke: look.line, width: 1 },
      size: 64,
      values: (_, values) => values.map(amountAt),
      ...(logarithmic ? {} : { incrs: WHOLE_STEPS }),
    },
  ];
}

/** Steps between the lines of an axis: counts have no fractions. */
const WHOLE_STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((power) => [
  power,
  2 * power,
  5 * power,
]);

/** Shows the numbers of the place that the pointer is at. */
function showHint(hint: HTMLElement | null, props: ChartProps, cursor: uPlot.Cursor): void {
  const point = props.points[(cursor.idx ?? -1) - offsetOf(props)];
  if (!hint) return;
  hint.hidden = point === undefined || (cursor.left ?? 0) < 0;
  if (point) hint.textContent = describe(point, props.series, props.unit);
}

/** Tones whose colour has another name. */
const TONES: Readonly<Record<string, string>> = { spent: 'main', quiet: 'edge' };

const placesOf = ({ points, placesMin = 1 }: ChartProps) => Math.max(placesMin, points.length);
/** The newest point is at the right end. */
const offsetOf = (props: ChartProps) => placesOf(props) - props.points.length;

/** The height of each bar with those below it, the highest first. */
function dataOf(props: ChartProps): uPlot.AlignedData {
  const { points, series } = props;
  const offset = offsetOf(props);
  const stacked = series.map((_, n) => points.map(({ values }) => sumOf(values.slice(0, n + 1)) || null));
  return [points.map((_, i) => offset + i), ...stacked.toReversed()];
}

const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);

/** The names of the series with their colours. */
export function Legend({ of }: { of: readonly Series[] }) {
  return (
    <span class="legend">
      {of.map(({ name, tone }) => (
        <span key={name}>
          <svg viewBox="0 0 10 10" aria-hidden="true">
            <rect class={tone} width="10" height="10" rx="2" />
          </svg>
          {name}
        </span>
      ))}
    </span>
  );
}

const amountText = (value: number, unit: string) => `${value.toLocaleString()} ${unit}`.trim();

function describe({ title, values }: Point, series: readonly Series[], unit: string): string {
  const parts = values.flatMap((value, i) =>
    value > 0 ? [`${amountText(value, unit)} ${series[i]?.name ?? ''}`] : [],
  );
  return `${title}: ${parts.join(', ') || 'none'}`;
}
