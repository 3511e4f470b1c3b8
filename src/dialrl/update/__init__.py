"""Stage `update`: one advantage file and a policy become a new policy directory. Importing it loads no torch."""
