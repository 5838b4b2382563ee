import { useState } from 'preact/hooks';

const THEMES = { system: 'as the system', light: 'light', dark: 'dark' };
const STORED_AS = 'theme';

/** Returns the chosen theme; a browser may forbid to remember one. */
function chosenTheme(): string {
  try {
    return localStorage.getItem(STORED_AS) ?? 'system';
  } catch {
    return 'system';
  }
}

/** Shows the page in the chosen theme. */
export function followTheme(theme = chosenTheme()): void {
  document.documentElement.dataset['theme'] = theme;
}

/** A choice of the theme, which this browser remembers. */
export function ThemeChoice() {
  const [theme, setTheme] = useState(chosenTheme);
  const choose = (next: string) => {
    setTheme(next);
    followTheme(next);
    try {
      if (next === 'system') localStorage.removeItem(STORED_AS);
      else localStorage.setItem(STORED_AS, next);
    } catch {
      // Then it lasts as long as the page.
    }
  };
  return (
    <label class="theme">
      Theme
      <select onChange={(event) => choose(event.currentTarget.value)}>
        {Object.entries(THEMES).map(([each, text]) => (
          <option key={each} value={each} selected={each === theme}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
