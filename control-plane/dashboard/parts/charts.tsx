const HEIGHT = 100;
const BAR = 10;
const GAP = 2;
/** Minimum number of places, so that a few bars are not wide. */
const PLACES_MIN = 30;

/** One kind of counted things; `tone` is its colour in style.css. */
export interface Series {
  readonly name: string;
  readonly tone: string;
}

/** Counts at one place of the horizontal axis, in the order of the series. */
export interface Point {
  readonly title: string;
  readonly values: readonly number[];
}

/**
 * Stacked bars with a legend, and with the numbers as a table for users who cannot see the bars.
 * @param props.logarithmic for times, so that slow ones do not hide quick ones; then each point has one value
 */
export function Bars(props: {
  label: string;
  unit: string;
  series: readonly Series[];
  points: readonly Point[];
  logarithmic?: boolean;
}) {
  const { label, unit, series, points, logarithmic = false } = props;
  const sums = points.map(({ values }) => values.reduce((a, b) => a + b, 0));
  const max = Math.max(1, ...sums);
  const scale = (value: number) => HEIGHT * (logarithmic ? Math.log1p(value) / Math.log1p(max) : value / max);
  const places = Math.max(PLACES_MIN, points.length);
  // The newest point is at the right end, above its time.
  const leftOf = (i: number) => (places - points.length + i) * (BAR + GAP);
  const visible = series.filter((_, i) => points.some(({ values }) => (values[i] ?? 0) > 0));
  return (
    <figure>
      <figcaption>
        {label}
        <Legend of={visible} />
      </figcaption>
      <div class="axis quiet">
        {amountText(max, unit)}
        {logarithmic && ', logarithmic'}
      </div>
      <svg
        class="chart"
        viewBox={`0 0 ${places * (BAR + GAP)} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${label}: ${points.length} bars, the highest ${amountText(max, unit)}`}
      >
        {points.map((point, i) => (
          <Bar
            key={point.title}
            title={describe(point, series, unit)}
            offset={leftOf(i)}
            heights={point.values.map(scale)}
            series={series}
          />
        ))}
      </svg>
      <div class="axis quiet">
        <span>{points.length === places && points[0]?.title}</span>
        <span>{points.at(-1)?.title}</span>
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

function Bar(props: {
  title: string;
  offset: number;
  heights: readonly number[];
  series: readonly Series[];
}) {
  const { title, offset, heights, series } = props;
  let top = HEIGHT;
  return (
    <g>
      <title>{title}</title>
      <rect class="back" x={offset} width={BAR + GAP} height={HEIGHT} />
      {heights.map((height, i) => {
        top -= height;
        const { name = '', tone = '' } = series[i] ?? {};
        return height > 0 && <rect key={name} class={tone} x={offset} y={top} width={BAR} height={height} />;
      })}
    </g>
  );
}

/** One bar divided into parts of a whole, with a legend. */
export function Gauge(props: {
  label: string;
  title: string;
  parts: readonly (Series & { readonly value: number })[];
  whole: number;
}) {
  const { label, title, parts, whole } = props;
  const text = parts.map(({ name, value }) => `${value.toLocaleString()} ${name}`);
  let offset = 0;
  return (
    <figure>
      <figcaption>
        {title}
        <Legend of={parts.map(({ tone }, i) => ({ tone, name: text[i] ?? '' }))} />
      </figcaption>
      <svg
        class="gauge"
        viewBox="0 0 1 1"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${label}: ${text.join(', ')}`}
      >
        <rect class="quiet" width="1" height="1" />
        {parts.map(({ name, tone, value }) => {
          const width = value / whole;
          offset += width;
          return <rect key={name} class={tone} x={offset - width} width={width} height="1" />;
        })}
      </svg>
    </figure>
  );
}

function Legend({ of }: { of: readonly Series[] }) {
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
