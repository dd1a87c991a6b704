"""Files of items -> rows: readers by suffix, columns of ids, codes and attributes. Knows no catalogue."""
