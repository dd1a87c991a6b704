"""The page that a replay leaves behind: one file that fetches nothing and runs nothing."""
