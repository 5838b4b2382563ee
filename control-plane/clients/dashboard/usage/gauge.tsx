import { Legend, type Series } from './charts.tsx';

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
